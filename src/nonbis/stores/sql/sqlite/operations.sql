-- name: insert_operations
insert into operation (
    id, digest, fingerprint, fingerprint_version, state, reason, attempt, sends, open_sends, refusals, owner,
    stamp, rail, account, contradicted, created_wall_ms, created_age_ms, started_wall_ms, started_age_ms,
    referenced_wall_ms, referenced_age_ms, changed_wall_ms, changed_age_ms
) values {rows: (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)}
on conflict (digest) do nothing

-- name: advance_operations
with next (
    expected, id, digest, fingerprint, fingerprint_version, state, reason, attempt, sends, open_sends, refusals,
    owner, stamp, rail, account, contradicted, created_wall_ms, created_age_ms, started_wall_ms,
    started_age_ms, referenced_wall_ms, referenced_age_ms, changed_wall_ms, changed_age_ms
) as (values {rows: (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)})
update operation set
    fingerprint = next.fingerprint,
    fingerprint_version = next.fingerprint_version,
    state = next.state,
    reason = next.reason,
    attempt = next.attempt,
    sends = next.sends,
    open_sends = next.open_sends,
    refusals = next.refusals,
    owner = next.owner,
    stamp = next.stamp,
    rail = next.rail,
    account = next.account,
    contradicted = next.contradicted,
    created_wall_ms = next.created_wall_ms,
    created_age_ms = next.created_age_ms,
    started_wall_ms = next.started_wall_ms,
    started_age_ms = next.started_age_ms,
    referenced_wall_ms = next.referenced_wall_ms,
    referenced_age_ms = next.referenced_age_ms,
    changed_wall_ms = next.changed_wall_ms,
    changed_age_ms = next.changed_age_ms
from next
where operation.id = next.id and operation.stamp = next.expected and operation.digest = next.digest

-- name: insert_requests
insert into request (id, digest, tenant, scope, request) values {rows: (?, ?, ?, ?, ?)}
on conflict (id) do nothing

-- name: write_outcomes
insert into outcome (id, outcome) values {rows: (?, ?)}
on conflict (id) do update set outcome = excluded.outcome

-- name: put_attention
insert into attention (id, digest) values {rows: (?, ?)}
on conflict (id) do nothing

-- name: drop_attention
delete from attention where id in (values {rows: (?)})

-- name: insert_journal
with entry (id, kind, machine, stamp, at_ms, state, reason, attempt, rule, who, because) as (
    values {rows: (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)}
)
insert into journal (id, kind, machine, stamp, at_ms, state, reason, attempt, rule, who, because)
select entry.*
from entry
where not exists (
    select 1
    from journal
    where journal.id = entry.id
        and journal.stamp = entry.stamp
        and journal.kind = entry.kind
        and journal.machine = entry.machine
        and journal.at_ms = entry.at_ms
        and journal.state = entry.state
        and journal.reason = entry.reason
        and journal.attempt = entry.attempt
        and journal.rule = entry.rule
        and journal.who = entry.who
        and journal.because = entry.because
)

-- name: stored_by_digests
select operation.*, request.tenant, request.scope, request.request, outcome.outcome
from operation
join request on request.id = operation.id
left join outcome on outcome.id = operation.id
where operation.digest in (values {rows: (?)})

-- name: records_by_digests
select * from operation where digest in (values {rows: (?)})

-- name: ids_in_use
select id, digest from operation where id in (values {rows: (?)})

-- name: stored_by_id
select operation.*, request.tenant, request.scope, request.request, outcome.outcome
from operation
join request on request.id = operation.id
left join outcome on outcome.id = operation.id
where operation.id = ?

-- name: open_of
select * from operation
where id between ? and ? and state in ('accepted', 'started')
order by id

-- name: attention
select operation.*
from attention
join operation on operation.id = attention.id
where attention.id > ?
order by attention.id
limit ?

-- name: journal
select id, kind, machine, stamp, at_ms, state, reason, attempt, rule, who, because
from journal
where id = ?
order by position

-- name: select_oldest
select operation.*, request.tenant, request.scope, request.request, outcome.outcome
from operation
join request on request.id = operation.id
left join outcome on outcome.id = operation.id
where operation.id between :low and :high
    and (:state is null or operation.state = :state)
    and (:tenant is null or request.tenant = :tenant)
    and (:scope is null or request.scope = :scope)
order by operation.id
limit :limit

-- name: select_newest
select operation.*, request.tenant, request.scope, request.request, outcome.outcome
from operation
join request on request.id = operation.id
left join outcome on outcome.id = operation.id
where operation.id between :low and :high
    and (:state is null or operation.state = :state)
    and (:tenant is null or request.tenant = :tenant)
    and (:scope is null or request.scope = :scope)
order by operation.id desc
limit :limit

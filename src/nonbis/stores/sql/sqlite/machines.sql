-- name: draw_machine
update fence set machine_counter = machine_counter + 1
where machine_counter < :largest
returning machine_counter

-- name: insert_machine
insert into machine (
    id, node, pid, kind, state, token, beat, oldest_open, lowest_in_flight, registered_at_ms, changed_at_ms,
    beat_token, beat_age_ms
) values (:id, :node, :pid, :kind, 'living', :token, 0, 0, 0, :at_ms, :at_ms, x'', 0)

-- name: machine
select id, node, pid, kind, state, beat, oldest_open, lowest_in_flight, registered_at_ms, changed_at_ms
from machine
where id = ?

-- name: machines
select id, node, pid, kind, state, beat, oldest_open, lowest_in_flight, registered_at_ms, changed_at_ms
from machine
order by id

-- name: machines_living
select id, node, pid, kind, state, beat, oldest_open, lowest_in_flight, registered_at_ms, changed_at_ms
from machine
where state = 'living'
order by id

-- name: machines_gone
select id, node, pid, kind, state, beat, oldest_open, lowest_in_flight, registered_at_ms, changed_at_ms
from machine
where state <> 'living'
order by id

-- name: tokens_living
select id, token from machine where state = 'living' order by id

-- name: token
select token from machine where id = ?

-- name: count_beat
update machine set
    beat = beat + 1,
    oldest_open = :oldest_open,
    lowest_in_flight = :lowest_in_flight,
    changed_at_ms = :at_ms,
    beat_token = :beat_token
where id = :id and beat = :count and state = 'living'

-- name: beat_of_token
select beat, beat_age_ms
from machine
where id = :id and beat = :count + 1 and state = 'living' and beat_token = :beat_token

-- name: grow_age
update fence set age_ms = age_ms + :elapsed_ms where age_ms = :seen_age_ms

-- name: age
select age_ms from fence

-- name: keep_beat_age
update machine set beat_age_ms = :age_ms where id = :id

-- name: lose
update machine set state = 'lost', changed_at_ms = :at_ms
where id = :id and beat = :count and state = 'living'

-- name: is_lost
select 1 from machine where id = ? and state = 'lost'

-- name: end
update machine set state = 'ended', changed_at_ms = :at_ms where id = :id and state = 'living'

-- name: insert_fence
insert into fence (
    one, store_id, store_key, store_key_check, generation, floor, epoch, age_ms, machine_counter
) values (1, :store_id, :store_key, :store_key_check, 1, 0, 1, 0, 0)

-- name: fence
select store_id, store_key, store_key_check, generation, floor, epoch, age_ms, machine_counter from fence

-- name: agreement
select agreement from agreement

-- name: write_agreement
insert into agreement (one, version, agreement) values (1, 1, ?)
on conflict (one) do update set version = agreement.version + 1, agreement = excluded.agreement

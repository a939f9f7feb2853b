-- One row per name. The id is the row's place in the table: rows of one machine lie side by side in the
-- order in which they were drawn. No index but the digest's, so an advance changes one page.
create table operation (
    id integer primary key,
    digest blob not null,
    fingerprint blob,
    fingerprint_version integer not null,
    state text not null,
    reason text,
    attempt integer not null,
    sends integer not null,
    open_sends integer not null,
    refusals integer not null,
    owner integer not null,
    stamp integer not null,
    rail text not null,
    account text not null,
    contradicted integer not null,
    created_wall_ms integer not null,
    created_age_ms integer not null,
    started_wall_ms integer,
    started_age_ms integer,
    referenced_wall_ms integer,
    referenced_age_ms integer,
    changed_wall_ms integer not null,
    changed_age_ms integer not null,
    constraint id_has_machine_and_sequence check (id >= 1 << 40),
    constraint stamp_has_machine_and_sequence check (stamp >= 1 << 40),
    constraint owner_is_a_machine check (owner between 1 and (1 << 23) - 1),
    constraint digest_has_16_bytes check (length(digest) = 16),
    constraint fingerprint_has_16_bytes check (fingerprint is null or length(fingerprint) = 16),
    constraint fingerprint_version_is_positive check (fingerprint_version > 0),
    constraint state_is_known check (state in ('accepted', 'started', 'in_doubt', 'applied', 'failed')),
    constraint reason_is_known check (
        reason is null or reason in ('declined', 'not_sent', 'settled', 'rejected', 'cancelled')
    ),
    constraint only_failed_has_a_reason check ((state = 'failed') = (reason is not null)),
    constraint attempt_is_positive check (attempt > 0),
    constraint sends_are_counted check (sends between 0 and 61),
    constraint open_sends_were_sent check (open_sends >= 0 and open_sends < 1 << sends),
    constraint refusals_are_earlier_or_this_attempt check (refusals between 0 and attempt),
    constraint accepted_has_no_send check (state <> 'accepted' or sends = 0),
    constraint present_send_is_open check (state <> 'started' or (sends > 0 and open_sends >> (sends - 1) = 1)),
    constraint in_doubt_has_an_open_send check (state <> 'in_doubt' or open_sends > 0),
    constraint a_send_has_a_moment check ((sends > 0) = (started_wall_ms is not null)),
    constraint moments_have_two_clocks check (
        (started_wall_ms is null) = (started_age_ms is null)
        and (referenced_wall_ms is null) = (referenced_age_ms is null)
    ),
    constraint contradicted_is_yes_or_no check (contradicted in (0, 1))
) strict;

create unique index operation_digest on operation (digest);

-- What was asked, written with the claim and never changed.
create table request (
    id integer primary key,
    digest blob not null,
    tenant text not null,
    scope text not null,
    request blob not null,
    constraint digest_has_16_bytes check (length(digest) = 16)
) strict;

-- What came of it, written with the advance that ends the operation.
create table outcome (
    id integer primary key,
    outcome blob not null
) strict;

-- Rows that sweepers and operators look for: in doubt, contradicted, adopted, tried again.
create table attention (
    id integer primary key,
    digest blob not null,
    constraint digest_has_16_bytes check (length(digest) = 16)
) strict;

-- What is out of the ordinary, in the order in which it was written.
create table journal (
    position integer primary key,
    id integer not null,
    kind text not null,
    machine integer not null,
    stamp integer not null,
    at_ms integer not null,
    state text not null,
    reason text not null,
    attempt integer not null,
    rule text not null,
    who text not null,
    because text not null,
    constraint kind_is_known check (
        kind in (
            'in_doubt', 'settled', 'retried', 'resent', 'taken_over',
            'cancelled', 'abandoned', 'corrected', 'contradicted', 'noted'
        )
    )
) strict;

create index journal_operation on journal (id, stamp);

-- One process incarnation. The last beat's arguments and its answer are kept, so that a beat repeated
-- after a lost answer is told from the beat of a clone.
create table machine (
    id integer primary key,
    node text not null,
    pid integer not null,
    kind text not null,
    state text not null,
    token text not null unique,
    beat integer not null,
    oldest_open integer not null,
    lowest_in_flight integer not null,
    registered_at_ms integer not null,
    changed_at_ms integer not null,
    beat_token blob not null,
    beat_age_ms integer not null,
    constraint id_is_a_machine check (id between 1 and (1 << 23) - 1),
    constraint state_is_known check (state in ('living', 'lost', 'ended')),
    constraint beat_is_counted check (beat >= 0)
) strict;

-- Living machines are few among many; no write of an operation touches this.
create index machine_living on machine (id) where state = 'living';

-- The one row of the store itself. Generation, floor and epoch belong to forgetting.
create table fence (
    one integer primary key,
    store_id blob not null,
    store_key blob not null,
    store_key_check blob not null,
    generation integer not null,
    floor integer not null,
    epoch integer not null,
    age_ms integer not null,
    machine_counter integer not null,
    constraint there_is_one check (one = 1),
    constraint store_id_has_16_bytes check (length(store_id) = 16),
    constraint store_key_has_32_bytes check (length(store_key) = 32),
    constraint age_is_not_negative check (age_ms >= 0),
    constraint machine_counter_has_23_bits check (machine_counter between 0 and (1 << 23) - 1)
) strict;

-- What all processes on this store have agreed on.
create table agreement (
    one integer primary key,
    version integer not null,
    agreement text not null,
    constraint there_is_one check (one = 1)
) strict;

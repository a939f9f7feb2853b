"""Input that is refused before anything is claimed: nothing happened and nothing was sent."""

from __future__ import annotations


class Refusal(ValueError):
    """A request that can't be taken as it stands. Its effect is always "not done".

    Attributes:
        code: one of the closed list of problem codes (``name-malformed``, ``member-invalid``, ...).
        member: the member of the body or the header that was wrong, or None.
        detail: a sentence for a person.
    """

    def __init__(self, code: str, detail: str, member: str | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.member = member


class NameMissing(Refusal):
    """No name was given where one is required."""

    def __init__(self, detail: str, member: str | None = None) -> None:
        super().__init__("name-missing", detail, member)


class NameMalformed(Refusal):
    """A name was given that can't be one; it is never treated as absent."""

    def __init__(self, detail: str, member: str | None = None) -> None:
        super().__init__("name-malformed", detail, member)


class BodyMalformed(Refusal):
    """The body is not the strict JSON that can be fingerprinted; ``member`` where the fault stands in one."""

    def __init__(self, detail: str, member: str | None = None) -> None:
        super().__init__("body-malformed", detail, member)


class MemberInvalid(Refusal):
    """One member of the body is missing, unknown, or out of its range."""

    def __init__(self, member: str, detail: str) -> None:
        super().__init__("member-invalid", detail, member)

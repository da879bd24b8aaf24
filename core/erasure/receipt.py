"""The receipt of an erasure: a signed document that anybody with the federator's public key can check, for years.

A JWS in compact form (RFC 7515): header, receipt and signature as base64url text with dots between. The header is
``{"alg": "EdDSA", "typ": "foltr-erasure+jws"}`` and nothing else; the signature is Ed25519 (RFC 8037). Only the signed
text itself passes: other spellings of the same bytes are refused too, so a receipt can be compared as text.

The header is the same in every version of the receipt. So any foltr, later or earlier, first checks that a receipt is
genuine, and then whether it understands it.
"""

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from foltr.core.erasure.states import NOTHING_UNLEARNED, Requester
from foltr.core.errors import DataError, SettingsError
from foltr.core.extras import install_command
from foltr.core.protocol.fields import Count, Name
from foltr.core.protocol.signing import KEY_BYTES, SigningKey, key_from_text
from foltr.core.protocol.states import Strategy

if TYPE_CHECKING:
    from jwt import PyJWS

VERSION: Final = 1
# Far more than any receipt has; larger texts are not read.
MAX_RECEIPT_BYTES = 64 * 1024
MAX_FIGURES = 64
_ALGORITHM = "EdDSA"
_TYPE = "foltr-erasure+jws"
_PART = re.compile(r"[A-Za-z0-9_-]+")
_ASK_AGAIN = "ask the sender for the file as it was issued, unchanged"


def utc_text(at: datetime) -> str:
    """Format a moment for receipts: ISO 8601 in UTC, to the microsecond, with Z. ValueError without a time zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; receipts take aware datetimes only")
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _moment(text: str) -> str:
    datetime.fromisoformat(text)  # a ValueError for a day or an hour that does not exist
    return text


_UtcText = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|\+00:00)$"),
    AfterValidator(_moment),
]


def _strategy(text: str) -> str:
    known = [NOTHING_UNLEARNED, *map(str, Strategy)]
    if text not in known:
        texts = {"first": ", ".join(map(repr, known[:-1])), "last": repr(known[-1])}
        raise PydanticCustomError("strategy", "Input should be {first} or {last}", texts)
    return str(text)


_StrategyText = Annotated[str, AfterValidator(_strategy)]
_Pseudonym = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
_Sha256Text = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_FigureName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class ErasureReceipt(BaseModel):
    """What was erased for one client, and what happened to the models it had taught. `docs/erasure.md` has every field.

    Attributes:
        version: of these fields, and of the definition of ``erased_digest``.
        pseudonym: see `foltr.core.erasure.pseudonyms`.
        requested_at, erased_at, completed_at: ISO 8601 in UTC; see `utc_text`.
        n_rounds, n_updates, n_events: completed rounds its updates were in; its updates and events that were deleted.
        erased_digest: over the stored bytes of its updates; see `foltr.core.erasure.digests`.
        key_destroyed: whether a key that its updates were encrypted with was found and destroyed.
        strategy: how the model was unlearned; ``none`` if the client had taught none.
        rounds_replayed: calibration rounds of the unlearning job.
        model_before, model_after: the version in service before, and the first without the client; None for ``none``.
        models_withdrawn: how many models' weights were deleted because the client's updates were in them.
        coverage: share of the retained clients' stored updates that were learned again; None for ``none``.
        figures: measures of the unlearned model by name.
        audit_seq, audit_hash: the entry of the audit log that records the same.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    version: Literal[1] = VERSION
    federation: Name
    pseudonym: _Pseudonym
    requested_at: _UtcText
    erased_at: _UtcText
    completed_at: _UtcText
    requested_by: Annotated[Requester, Field(strict=False)]
    n_rounds: Count
    n_updates: Count
    n_events: Count
    erased_digest: _Sha256Text
    key_destroyed: bool
    strategy: _StrategyText
    rounds_replayed: Count
    model_before: Count | None
    model_after: Count | None
    models_withdrawn: Count
    coverage: Annotated[float, Field(ge=0, le=1)] | None
    figures: Annotated[dict[_FigureName, _Finite], Field(max_length=MAX_FIGURES)]
    audit_seq: Annotated[int, Field(ge=1, le=2**63 - 1)]
    audit_hash: _Sha256Text

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        unlearned = self.strategy != NOTHING_UNLEARNED
        if unlearned != (self.model_before is not None) or unlearned != (self.model_after is not None):
            raise ValueError("model_before and model_after are both set, or the strategy is none and neither is")
        if not unlearned and (self.rounds_replayed or self.models_withdrawn or self.coverage is not None):
            raise ValueError("nothing is replayed, withdrawn or covered where the strategy is none")
        return self


def sign_receipt(receipt: ErasureReceipt, key: SigningKey) -> str:
    """Return the signed text of a receipt. The same receipt and key give the same text.

    Args:
        key: the federator's.

    Raises:
        SettingsError: PyJWT is not installed.
    """
    # The library needs its own key type; ours exports only its text.
    private = Ed25519PrivateKey.from_private_bytes(key_from_text("signing_key", key.to_text()))
    payload = json.dumps(receipt.model_dump(), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return _signatures().encode(payload, private, algorithm=_ALGORITHM, headers={"typ": _TYPE})


def verify_receipt(text: str, public_key: bytes) -> ErasureReceipt:
    """Return the receipt in ``text``, if the holder of ``public_key`` signed exactly this text.

    Raises:
        DataError: it is not a receipt, is not signed by this key, was changed, or has an unknown version.
        SettingsError: ``public_key`` is not 32 bytes, or PyJWT is not installed.
    """
    if len(public_key) != KEY_BYTES:
        raise SettingsError(f"key: {len(public_key)} bytes; an Ed25519 public key has {KEY_BYTES}")
    if len(text) > MAX_RECEIPT_BYTES:
        raise DataError(
            f"receipt: it has more than {MAX_RECEIPT_BYTES} characters, which no receipt has; is it the right file?"
        )
    header, _, _ = _parts(text)
    _check_header(header)
    signatures, key = _signatures(), Ed25519PublicKey.from_public_bytes(public_key)
    from jwt.exceptions import PyJWTError

    try:
        payload = signatures.decode(text, key, algorithms=[_ALGORITHM])
    except PyJWTError as error:
        raise DataError(
            "receipt: its signature is not this key's: it was changed, or another federator signed it. Compare the key "
            f"with federator_key in the credentials of a device of the federation, and {_ASK_AGAIN}"
        ) from error
    return _read_receipt(payload)


def unverified_fields(text: str) -> dict[str, Any]:
    """Return a possible receipt's fields without checking its signature, to compare them with the database.

    Raises:
        DataError: it is not a JWS of a JSON object.
    """
    return _json_object("receipt", _parts(text)[1])


def _parts(text: str) -> tuple[bytes, bytes, bytes]:
    """Header, receipt and signature of a compact JWS in its one spelling."""
    parts = text.split(".")
    if len(parts) != 3:
        raise DataError(f"receipt: it is not three texts with dots between; {_ASK_AGAIN}")
    header, payload, signature = (_decoded(part) for part in parts)
    return header, payload, signature


def _decoded(part: str) -> bytes:
    """Decode base64url without padding (RFC 7515, section 2).

    The last letter may have unused bits; they must be zero, or one receipt would have several texts.
    """
    if _PART.fullmatch(part):
        try:
            decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        except binascii.Error:
            decoded = b""
        if base64.urlsafe_b64encode(decoded).rstrip(b"=") == part.encode():
            return decoded
    raise DataError(f"receipt: a part of it is not base64url text; {_ASK_AGAIN}")


def _check_header(header: bytes) -> None:
    """Refuse every header but ours: a sender that chooses the algorithm chooses what passes (RFC 8725, section 3.1)."""
    found = _json_object("header", header)
    if found.get("alg") != _ALGORITHM:
        raise DataError(
            f"receipt: signed with {found.get('alg')!r:.40}; only {_ALGORITHM} is accepted. It is not a receipt of "
            f"a federator: {_ASK_AGAIN}"
        )
    if found.get("typ") != _TYPE:
        raise DataError(f"receipt: it is a {found.get('typ')!r:.40}, not a {_TYPE}; is it the right file?")
    if len(found) != 2:
        others = ", ".join(sorted(found.keys() - {"alg", "typ"}))
        raise DataError(f"receipt: its header has more than alg and typ: {others!r:.60}; {_ASK_AGAIN}")


def _read_receipt(payload: bytes) -> ErasureReceipt:
    """Read a payload whose signature was verified; faults in it were signed."""
    fields = _json_object("receipt", payload)
    version = fields.get("version")
    # By type too: in Python, 1 == True == 1.0.
    if type(version) is not int or version < VERSION:
        raise DataError(f"receipt: it is signed, but has no version ({version!r:.40}); tell the federation's operator")
    if version > VERSION:
        raise DataError(
            f"receipt: its signature is valid, but its version {version} is newer than this foltr reads "
            f"({VERSION}): upgrade foltr and verify it again"
        )
    try:
        return ErasureReceipt.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "fields"
        raise DataError(
            f"receipt: it is signed, but {where} is not what a receipt has: {problem['msg']:.120}; tell the "
            "federation's operator"
        ) from error


def _json_object(what: str, text: bytes) -> dict[str, Any]:
    """Return a JSON object without duplicate keys or trailing text."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"receipt: its {what} is not JSON that can be relied on ({error!s:.80}); {_ASK_AGAIN}"
        ) from error
    if not isinstance(found, dict):
        raise DataError(f"receipt: its {what} is not a JSON object; {_ASK_AGAIN}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Readers differ in which of two they use.
        raise ValueError("a key is there twice")
    return found


def _signatures() -> "PyJWS":
    try:
        from jwt import PyJWS
    except ImportError as error:
        raise SettingsError(f"receipts need PyJWT, of the extra 'federator': {install_command('federator')}") from error
    return PyJWS(algorithms=[_ALGORITHM])

"""The certificate authorities in an operator's folder: the one that issues, and a second one during its replacement.

    ca.crt, ca.key, ca.crl                          issues certificates, and lists the revoked ones
    ca-next.crt, ca-next.key, ca-next.crl           trusted already, issues nothing yet
    ca-former.crt, ca-former.key, ca-former.crl     still trusted, issues nothing any longer

An authority is replaced in three steps, with time in between for devices to hear of each. `begin_authority` has a
second one trusted, `switch_authority` has it issue the broker's certificate, and `end_former_authority` ends the trust
in the first. The broker's ``ca.crt`` and all credentials hold the certificates of every trusted authority.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from foltr.broker.certificates import KeyPair, create_authority, load_authority
from foltr.broker.files import locked, replace_file
from foltr.core.errors import SettingsError
from foltr.core.operator.next_commands import command_in
from foltr.core.user_files import FileKind, read_text_file

CA_KEY_NAME = "ca.key"


class AuthorityStep(StrEnum):
    """How far the replacement of an authority has come."""

    ALONE = "alone"
    """One authority is trusted, and issues."""
    BEGUN = "begun"
    """The next one is trusted as well; the old one issues."""
    SWITCHED = "switched"
    """The next one issues; the former one is still trusted."""


@dataclass(frozen=True)
class AuthorityFiles:
    """The files of one authority in an operator's folder."""

    certificate: Path
    key: Path
    revoked: Path

    @property
    def exist(self) -> bool:
        return self.certificate.exists() and self.key.exists()

    def load(self) -> KeyPair:
        return load_authority(self.certificate, self.key)


def files_of(operator_dir: Path, stem: str) -> AuthorityFiles:
    """The files of the authority with this stem: ``ca``, ``ca-next`` or ``ca-former``."""
    return AuthorityFiles(*(operator_dir / f"{stem}.{ending}" for ending in ("crt", "key", "crl")))


def issuing_authority(operator_dir: Path) -> KeyPair:
    """The authority that issues certificates; SettingsError if it is missing or damaged."""
    return files_of(operator_dir, "ca").load()


def trusted_ca_files(operator_dir: Path) -> Iterator[AuthorityFiles]:
    """The files of the trusted authorities, the issuing one first."""
    yield files_of(operator_dir, "ca")
    for stem in ("ca-next", "ca-former"):
        if (files := files_of(operator_dir, stem)).exist:
            yield files


def trusted_ca_certificates(operator_dir: Path) -> str:
    """The certificates of all trusted authorities as PEM text, the issuing one's first. Raises OSError."""
    return "".join(read_text_file(files.certificate, FileKind.CERTIFICATES) for files in trusted_ca_files(operator_dir))


def step_of(operator_dir: Path) -> AuthorityStep:
    """How far the replacement of the authority has come.

    Raises:
        SettingsError: a step was interrupted; run the same command again to complete it.
    """
    next_, former = (files_of(operator_dir, stem).exist for stem in ("ca-next", "ca-former"))
    if next_ and former:
        raise SettingsError(
            f"authority: its replacement was interrupted; run `{_command(operator_dir, 'switch')}` again"
        )
    return AuthorityStep.BEGUN if next_ else AuthorityStep.SWITCHED if former else AuthorityStep.ALONE


def begin_authority(operator_dir: Path, federation: str) -> None:
    """Make the next authority, which is trusted from now on and issues nothing yet.

    Raises:
        SettingsError: another replacement is still in progress.
        OSError: a file cannot be written.
    """
    with locked(operator_dir):
        if (step := step_of(operator_dir)) is not AuthorityStep.ALONE:
            raise SettingsError(f"authority: a replacement is {step} already; see: {_command(operator_dir, 'show')}")
        issuing_authority(operator_dir)
        number = 2 + _number_of(operator_dir)
        files = files_of(operator_dir, "ca-next")
        # A name different from the first one's: a certificate's issuer is found by its name.
        authority = create_authority(f"foltr {federation} {number}")
        replace_file(files.key, authority.key_pem)
        # Last: the certificate marks the authority as complete.
        replace_file(files.certificate, authority.certificate_pem, mode=0o644)
        replace_file(operator_dir / _NUMBER_NAME, f"{number - 1}\n", mode=0o644)


def switch_authority(operator_dir: Path) -> None:
    """Have the next authority issue from now on; if interrupted, call again to complete it.

    Raises:
        SettingsError: no next authority was begun.
        OSError: a file cannot be written.
    """
    issuing, next_, former = (files_of(operator_dir, stem) for stem in ("ca", "ca-next", "ca-former"))
    with locked(operator_dir):
        if not next_.exist:
            raise SettingsError(f"authority: no next authority exists; make it with: {_command(operator_dir, 'begin')}")
        next_.load()
        if not former.exist:
            issuing.load()
            _copy(issuing, former)
        _copy(next_, issuing)
        _remove(next_)


def end_former_authority(operator_dir: Path) -> None:
    """End the trust in the former authority, and destroy its key.

    Raises:
        SettingsError: no former authority exists, or the next one does not issue yet.
        OSError: a file cannot be removed.
    """
    with locked(operator_dir):
        if step_of(operator_dir) is not AuthorityStep.SWITCHED:
            raise SettingsError(
                f"authority: no former authority can be removed yet; before that: {_command(operator_dir, 'switch')}"
            )
        _remove(files_of(operator_dir, "ca-former"))


def _command(operator_dir: Path, step: str) -> str:
    return command_in(operator_dir, f"foltr broker authority {step}")


_NUMBER_NAME = "ca-replaced"


def _number_of(operator_dir: Path) -> int:
    """How often the authority has been replaced."""
    path = operator_dir / _NUMBER_NAME
    try:
        return int(read_text_file(path, FileKind.KEY)) if path.exists() else 0
    except ValueError:
        raise SettingsError(f"authority: {path} is damaged; restore it from a backup") from None


def _copy(source: AuthorityFiles, target: AuthorityFiles) -> None:
    # The certificate last: with the key it marks the authority as complete.
    replace_file(target.key, read_text_file(source.key, FileKind.CERTIFICATES))
    if source.revoked.exists():
        replace_file(target.revoked, read_text_file(source.revoked, FileKind.CERTIFICATES), mode=0o644)
    else:
        target.revoked.unlink(missing_ok=True)
    replace_file(target.certificate, read_text_file(source.certificate, FileKind.CERTIFICATES), mode=0o644)


def _remove(files: AuthorityFiles) -> None:
    # The key first: without it the authority no longer exists.
    for path in (files.key, files.certificate, files.revoked):
        path.unlink(missing_ok=True)

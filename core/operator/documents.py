"""The numbered documents of an operator's folder: the signed bytes of each version, which never change.

00000003.policy    version 3, on disk before it is published
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.credentials import write_secret
from foltr.core.protocol.policies import MAX_PREDECESSORS, Policy
from foltr.core.protocol.roster import Authorities
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signed_documents import SignedDocument, issue_authorities, issue_schema
from foltr.core.protocol.signed_policies import Lineage, SignedPolicy, issue_policy, lineage_of
from foltr.core.protocol.signing import SigningKey
from foltr.core.user_files import FileKind, read_file

D = TypeVar("D", bound=SignedDocument[Any])


class DocumentLog(Generic[D]):
    """The documents of one kind in one operator's folder, whose lock is held.

    Args:
        folder: of these documents alone; created with the first one.
        kind: the ending of files, and the name of a document in errors.
        read: checks the signature of a file's bytes.
    """

    def __init__(self, folder: Path, kind: str, read: Callable[[bytes], D]) -> None:
        self._folder = folder
        self._kind = kind
        self._read = read
        names = folder.iterdir() if folder.is_dir() else ()
        self.versions = {int(path.stem) for path in names if path.suffix == f".{kind}" and path.stem.isdecimal()}

    @property
    def newest_version(self) -> int:
        """The version of the newest document; 0 before the first."""
        return max(self.versions, default=0)

    def newest(self) -> D | None:
        """Return the newest document; None before the first."""
        return self.get(self.newest_version) if self.versions else None

    def get(self, version: int) -> D:
        """Return a document; SettingsError if this version does not exist, or its file is damaged."""
        if version not in self.versions:
            raise SettingsError(
                f"{self._kind}: {self._folder} has no version {version}; its newest is {self.newest_version}"
            )
        path = self._path(version)
        try:
            document = self._read(read_file(path, FileKind.MESSAGE))
        except (OSError, MessageError) as error:
            raise SettingsError(f"operator: {path} is damaged ({error}); restore it from a backup") from error
        if document.version != version:
            raise SettingsError(f"operator: {path} is damaged (it is version {document.version})")
        return document

    def require_newer(self, version: int) -> None:
        """Raise SettingsError unless a version is above all others here."""
        if version <= self.newest_version:
            raise SettingsError(f"version: {version} is not above {self.newest_version}, the newest {self._kind} here")

    def write(self, document: D) -> D:
        """Write a newer document, and return it; SettingsError as `require_newer`."""
        self.require_newer(document.version)
        write_secret(self._path(document.version), document.signed)
        self.versions.add(document.version)
        return document

    def set_aside(self, version: int) -> None:
        """Remove a document; its file stays, under another name."""
        self._path(version).rename(self._path(version).with_suffix(f".{self._kind}-set-aside"))
        self.versions.discard(version)

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:08}.{self._kind}"


def write_authorities(
    log: DocumentLog[SignedDocument[Authorities]], key: SigningKey, federation: str, certificates: list[str]
) -> None:
    """Sign and write a list of authorities; the newest one again is returned as it was signed."""
    newest = log.newest()
    if newest is None or newest.content.certificates != certificates:
        version = log.newest_version + 1
        log.write(
            issue_authorities(key, Authorities(federation=federation, version=version, certificates=certificates))
        )


def write_schema(
    log: DocumentLog[SignedDocument[FeatureSchema]], key: SigningKey, schema: FeatureSchema, federation: str
) -> SignedDocument[FeatureSchema]:
    """Sign and write a schema; the newest one again is returned as it was signed.

    Raises:
        SettingsError: its version is not above all others here, and it is not the newest one.
    """
    newest = log.newest()
    if newest is not None and newest.content == schema:
        return newest
    if newest is not None and newest.version == schema.version:
        raise SettingsError(
            f"version: {schema.version} is signed already, with other features or another name; a changed schema "
            "needs a higher version, and the federation of the older one stays as it is: docs/features.md"
        )
    return log.write(issue_schema(key, schema, federation))


def policies_in_force(log: DocumentLog[SignedPolicy], published: int) -> list[Policy]:
    """All policies that may be in force: the published one, its predecessor for the open round, and newer ones."""
    versions = sorted(log.versions)
    oldest = max([version for version in versions if version < published], default=0)
    return [log.get(version).policy for version in versions if version >= oldest]


def write_policy(log: DocumentLog[SignedPolicy], key: SigningKey, policy: Policy) -> SignedPolicy:
    """Sign a policy, which names its predecessors, and write it.

    Raises:
        SettingsError: its version is not above all others here, or a helper reuses the sealing key of an older policy:
            each policy's key is destroyed once the next one is in force.
    """
    log.require_newer(policy.version)
    helpers = [each for version in log.versions for each in log.get(version).policy.helpers]
    used = {key for each in helpers for key in (each.sealing_key, *each.epoch_keys)}
    for helper in policy.helpers:
        if not used.isdisjoint((helper.sealing_key, *helper.epoch_keys)):
            raise SettingsError(
                f"helper: {helper.name} has the sealing key of an older policy; a policy brings new ones: "
                "foltr helper keys"
            )
    before = log.newest()
    chain = [] if before is None else [before.hash, *before.policy.predecessors][:MAX_PREDECESSORS]
    return log.write(issue_policy(key, policy.model_copy(update={"predecessors": chain})))


def recover_policy(log: DocumentLog[SignedPolicy], published: SignedPolicy) -> list[int] | None:
    """Recover a policy that the broker has and this folder lost: it was restored from an older copy.

    Devices follow from the published policy, and refuse all others. So policies that this folder has made since,
    outside that line, are set aside.

    Returns:
        the versions that were set aside; None if the folder has the published policy, or one that follows from it.
    """
    newest = log.newest()
    if newest is not None and lineage_of(newest, published) in (Lineage.KNOWN, Lineage.SUCCESSOR):
        return None
    line = set(published.policy.predecessors)
    others = [version for version in sorted(log.versions) if log.get(version).hash not in line]
    for version in others:
        log.set_aside(version)
    log.write(published)
    return others

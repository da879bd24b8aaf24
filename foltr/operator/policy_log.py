"""The policies of an operator's folder: the signed bytes of each version, which never change.

00000003.policy    version 3, on disk before anybody is told of it
"""

import base64
from pathlib import Path

from foltr.errors import MessageError, SettingsError
from foltr.operator.credentials import Credentials, read_credentials, write_credentials, write_secret
from foltr.protocol.policies import Policy
from foltr.protocol.signed_policies import SignedPolicy, issue_policy, read_policy
from foltr.protocol.signing import SigningKey


class PolicyLog:
    """The policies of one operator's folder, whose lock is held.

    Args:
        folder: of the policies alone; made with the first one.
        key: the enrolment key, which signs them.
    """

    def __init__(self, folder: Path, federation: str, key: SigningKey) -> None:
        self._folder = folder
        self._federation = federation
        self._key = key
        names = folder.iterdir() if folder.is_dir() else ()
        self._versions = {int(path.stem) for path in names if path.suffix == ".policy" and path.stem.isdecimal()}

    @property
    def newest_version(self) -> int:
        """The version of the newest policy; 0 before the first."""
        return max(self._versions, default=0)

    def newest(self) -> SignedPolicy | None:
        """Return the newest policy; None before the first."""
        return self.get(self.newest_version) if self._versions else None

    def get(self, version: int) -> SignedPolicy:
        """Return a policy.

        Raises:
            SettingsError: there is none of this version, or its file is damaged.
        """
        if version not in self._versions:
            raise SettingsError(f"policy: {self._folder} has no version {version}; its newest is {self.newest_version}")
        path = self._path(version)
        try:
            signed = read_policy(path.read_bytes(), self._key.public, self._federation)
        except (OSError, MessageError) as error:
            raise SettingsError(f"operator: {path} is damaged ({error}); restore it from a backup") from error
        if signed.policy.version != version:
            raise SettingsError(f"operator: {path} is damaged (it is version {signed.policy.version})")
        return signed

    def write(self, policy: Policy) -> SignedPolicy:
        """Sign a policy and write it down.

        Raises:
            SettingsError: its version is not above all others here, or a helper has the sealing key of an older
                policy: that of each policy is destroyed once the next one is in force.
        """
        if policy.version <= self.newest_version:
            raise SettingsError(f"version: {policy.version} is not above {self.newest_version}, the newest policy here")
        used = {each.sealing_key for version in self._versions for each in self.get(version).policy.helpers}
        for helper in policy.helpers:
            if helper.sealing_key in used:
                raise SettingsError(
                    f"helper: {helper.name} has the sealing key of an older policy; a policy brings new ones: "
                    "foltr helper keys"
                )
        signed = issue_policy(self._key, policy)
        write_secret(self._path(policy.version), signed.signed)
        self._versions.add(policy.version)
        return signed

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:08}.policy"


def carry_policy(folder: Path, operator: Credentials, newest: SignedPolicy | None) -> Credentials:
    """Let the credentials of the services in an operator's folder carry the newest policy.

    ``federator.json`` is passed over where it was moved to the federator's machine; it hears of it from the broker.

    Returns:
        the operator's, as they are now.
    """
    policy = None if newest is None else base64.b64encode(newest.signed).decode()
    if operator.policy == policy:
        return operator
    path = folder / "federator.json"
    if path.exists():
        federator = read_credentials(path, "federator")
        write_credentials(path, federator.model_copy(update={"policy": policy}))
    operator = operator.model_copy(update={"policy": policy})
    # Last, as it tells that the rest is done.
    write_credentials(folder / "operator.json", operator)
    return operator

"""A private certificate authority: one key that vouches for the broker and, if wanted, for every client.

ECDSA on P-256: small, fast on a device, and understood by every TLS library.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_text_file

AUTHORITY_DAYS = 3650
# The longest that all TLS libraries accept of a certificate.
CERTIFICATE_DAYS = 825
RENEW_DAYS = 30
# Not a host name, so that nobody takes the broker's certificate for a user's.
SERVER_NAME = "foltr broker"
# A device whose clock is slow must not see a certificate from the future.
_CLOCK_SKEW = timedelta(hours=1)
_DNS_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM text."""

    certificate_pem: str
    key_pem: str = field(repr=False)


def create_authority(name: str, days: int = AUTHORITY_DAYS) -> KeyPair:
    """A new self-signed authority, which may sign certificates but no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = (
        _builder(subject, subject, key.public_key(), datetime.now(UTC) + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, by=key)


def issue_server(authority: KeyPair, hosts: Sequence[str], days: int = CERTIFICATE_DAYS) -> KeyPair:
    """A certificate for a server that clients reach by any of ``hosts``: DNS names or IP addresses.

    Raises:
        SettingsError: ``hosts`` is empty, or one is neither.
    """
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    if not hosts:
        raise SettingsError("host: a server certificate needs at least one name; give the name that devices connect to")
    return _issue(authority, SERVER_NAME, ExtendedKeyUsageOID.SERVER_AUTH, days, names)


def issue_client(authority: KeyPair, common_name: str, days: int = CERTIFICATE_DAYS) -> KeyPair:
    """A certificate that says its holder is ``common_name``; it cannot serve as a server's."""
    return _issue(authority, common_name, ExtendedKeyUsageOID.CLIENT_AUTH, days, None)


def load_authority(certificate: Path, key: Path) -> KeyPair:
    """The authority in two files. SettingsError if they do not hold one, or not the same one."""
    try:
        pair = KeyPair(read_text_file(certificate, FileKind.CERTIFICATES), read_text_file(key, FileKind.CERTIFICATES))
        loaded, private_key = _certificate(pair.certificate_pem), _private_key(pair.key_pem)
    except OSError as error:
        raise SettingsError(
            f"{error.filename}: {error.strerror}; name the folder that foltr broker config wrote with --operator"
        ) from error
    except (ValueError, TypeError) as error:
        raise SettingsError(
            f"{certificate}, {key}: not the certificate and unencrypted key of an authority; put back the ones "
            "foltr broker config wrote"
        ) from error
    if loaded.public_key() != private_key.public_key():
        raise SettingsError(f"{key}: not the key of {certificate}; put back the one foltr broker config wrote")
    return pair


def is_still_valid(certificate_pem: str, authority_pem: str, hosts: Collection[str] | None = None) -> bool:
    """Whether this authority issued it, it lasts for RENEW_DAYS and, if given, is for exactly ``hosts``."""
    try:
        certificate = _certificate(certificate_pem)
        certificate.verify_directly_issued_by(_certificate(authority_pem))
    except (ValueError, TypeError, InvalidSignature):
        return False
    if certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=RENEW_DAYS):
        return False
    if hosts is None:
        return True
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(names) == {_general_name(host) for host in hosts}


def is_key_pair(pair: KeyPair) -> bool:
    """Whether certificate and key match: a command that writes both may be interrupted in between."""
    try:
        return _certificate(pair.certificate_pem).public_key() == _private_key(pair.key_pem).public_key()
    except (ValueError, TypeError):
        return False


def hosts_of(certificate_pem: str) -> tuple[str, ...]:
    """The DNS names and IP addresses that a server's certificate is for; ValueError if it is not a certificate."""
    names = _certificate(certificate_pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(name.value) for name in names)


def common_name_of(certificate_pem: str) -> str:
    """The common name of a certificate's subject."""
    return str(_certificate(certificate_pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def expiry_of(certificate_pem: str) -> datetime:
    """When a certificate ends, in UTC."""
    return _certificate(certificate_pem).not_valid_after_utc


def serial_of(certificate_pem: str) -> int:
    """The serial number of a certificate."""
    return _certificate(certificate_pem).serial_number


def issue_revocations(authority: KeyPair, serials: Iterable[int], before: str | None) -> str:
    """A revocation list, as PEM text: these serial numbers, and those on the list ``before``.

    It lasts as long as the authority: a broker with an expired list lets nobody in. A complete ``before`` is returned.

    Raises:
        SettingsError: ``before`` is not a list of this authority.
    """
    issuer, key = _certificate(authority.certificate_pem), _private_key(authority.key_pem)
    now = datetime.now(UTC)
    on_it = {} if before is None else _listed(before, issuer)
    added = dict.fromkeys(serials, now)
    if before is not None and added.keys() <= on_it.keys():
        return before
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=issuer.subject, last_update=now - _CLOCK_SKEW, next_update=issuer.not_valid_after_utc
    )
    for serial, since in sorted((added | on_it).items()):
        entry = x509.RevokedCertificateBuilder(serial_number=serial, revocation_date=since).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _listed(pem: str, issuer: x509.Certificate) -> dict[int, datetime]:
    """The serial numbers on a list, each with its date."""
    try:
        listed = x509.load_pem_x509_crl(pem.encode())
        if not listed.is_signature_valid(issuer.public_key()):  # type: ignore[arg-type]
            raise ValueError("it is another authority's")
    except (ValueError, TypeError) as error:
        raise SettingsError(f"the list of revoked certificates: {error}; put back the one of this authority") from error
    return {entry.serial_number: entry.revocation_date_utc for entry in listed}


def _issue(
    authority: KeyPair,
    common_name: str,
    usage: x509.ObjectIdentifier,
    days: int,
    names: x509.SubjectAlternativeName | None,
) -> KeyPair:
    issuer, issuer_key = _certificate(authority.certificate_pem), _private_key(authority.key_pem)
    # A certificate that outlives its authority fails without saying why when that expires.
    until = min(datetime.now(UTC) + timedelta(days=days), issuer.not_valid_after_utc)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer_ski = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, issuer.subject, key.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_ski), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _signed(builder, key, by=issuer_key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, *, by: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(by, hashes.SHA256())
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem.decode())


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _DNS_NAME.fullmatch(host):
            raise SettingsError(
                f"host: {host!r} is neither a host name nor an IP address; give what devices will connect to, "
                "without mqtts:// and without a port"
            ) from None
        return x509.DNSName(host.lower())


def _certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def _private_key(pem: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"a {type(key).__name__}, where a key on an elliptic curve was expected")
    return key

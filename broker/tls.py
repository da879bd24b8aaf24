"""TLS to the broker: the trusted authorities, our own certificate, and what a failed handshake means."""

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from foltr.core.errors import SettingsError


@dataclass(frozen=True)
class TlsMaterial:
    """Certificates and keys as PEM text.

    Attributes:
        ca: the certificate authorities to trust; None: those of this system.
        certificate: our own certificate if the broker asks for one, with ``key``, which is not encrypted.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)


class _ClosingSocket(ssl.SSLSocket):
    """Closes after a failed handshake: paho-mqtt leaves the socket and its descriptor to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self.close()
            raise


def client_context(material: TlsMaterial | None) -> ssl.SSLContext:
    """TLS 1.2 or later; the broker's certificate and host name are checked.

    Raises:
        SettingsError: a PEM text is invalid, or certificate and key do not belong together.
    """
    material = material or TlsMaterial()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
    context.sslsocket_class = _ClosingSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if material.ca is None:
        context.load_default_certs()
    else:
        _trust(context, material.ca, "broker_ca")
    if material.certificate is not None and material.key is not None:
        _identify(context, material.certificate, material.key)
    elif material.certificate is not None:
        raise SettingsError("broker_key: it is missing; broker_certificate cannot be used without its key")
    elif material.key is not None:
        raise SettingsError("broker_certificate: it is missing; broker_key is the key of a certificate")
    return context


def explain_failure(error: BaseException | None) -> tuple[str, str] | None:
    """Say what went wrong with TLS and what to do about it; None if ``error`` does not come from TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if error.verify_code in _WRONG_HOST:
            return f"its certificate is for another host ({why})", _DO_WRONG_HOST
        if error.verify_code in _WRONG_TIME:
            return f"its certificate is not valid now ({why})", _DO_WRONG_TIME
        return f"its certificate is not one we trust ({why})", _DO_NOT_TRUSTED
    if not isinstance(error, ssl.SSLError):
        return None
    why = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    if any(sign in why for sign in _CERTIFICATE_WANTED):
        return f"it asks for a client certificate and was given none ({why})", _DO_CERTIFICATE_WANTED
    if any(sign in why for sign in _CERTIFICATE_REFUSED):
        return f"it refuses our client certificate ({why})", _DO_CERTIFICATE_REFUSED
    if any(sign in why for sign in _NO_TLS):
        return f"this port does not use TLS ({why})", _DO_NO_TLS
    return f"the TLS handshake failed ({why})", "See the broker's log."


# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH, _CERT_NOT_YET_VALID and _CERT_HAS_EXPIRED.
_WRONG_HOST = (62, 64)
_WRONG_TIME = (9, 10)
_DO_WRONG_HOST = "Connect to a name in the certificate, or add this one: foltr broker config --tls --host NAME."
_DO_WRONG_TIME = "Check this machine's clock; `foltr broker renew` renews the broker's certificate."
_DO_NOT_TRUSTED = (
    "The authority in these credentials did not issue it. Are they for this broker? If its authority was replaced, "
    "run `foltr broker readmit`; `foltr device enrol NAME --replace` writes new ones."
)

# Parts of the names OpenSSL gives to the alerts of the other side; they differ between TLS 1.2 and 1.3.
_CERTIFICATE_WANTED = ("certificate required", "handshake failure")
_CERTIFICATE_REFUSED = ("unknown ca", "alert bad certificate", "alert unsupported certificate", "alert certificate")
_NO_TLS = ("wrong version number", "eof occurred", "unexpected eof", "record layer failure")
_DO_CERTIFICATE_WANTED = "Give broker_certificate and broker_key, as made when this user was enrolled."
_DO_CERTIFICATE_REFUSED = "Enrol this user again with the broker's authority, and use that certificate and key."
# How the advice ends in the two ways of being refused.
DO_CERTIFICATES = (_DO_CERTIFICATE_WANTED, _DO_CERTIFICATE_REFUSED)
_DO_NO_TLS = "Give the port of the TLS listener, 8883 by default, or mqtt:// for a port without TLS."


def _trust(context: ssl.SSLContext, pem: str, setting: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise SettingsError(
            f"{setting}: this is not a certificate in PEM format ({_reason(error)}); expected text with -----BEGIN "
            "CERTIFICATE-----"
        ) from None


def _identify(context: ssl.SSLContext, certificate: str, key: str) -> None:
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, "broker_certificate")
    # OpenSSL reads these from files only. The folder is private (0700) and removed once they are read.
    with tempfile.TemporaryDirectory(prefix="foltr-tls-") as folder:
        certificate_file, key_file = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        certificate_file.write_text(certificate, encoding="ascii")
        key_file.write_text(key, encoding="utf-8")
        try:
            # Given a password, even a wrong one, OpenSSL does not prompt on the terminal.
            context.load_cert_chain(certificate_file, key_file, password="")
        except (ssl.SSLError, ValueError) as error:
            reason = _reason(error)
            if "KEY_VALUES_MISMATCH" in reason or "KEY_TYPE_MISMATCH" in reason:
                raise SettingsError("broker_key: it is not the key of broker_certificate; give the pair") from None
            raise SettingsError(
                f"broker_key: this is not an unencrypted private key in PEM format ({reason}); expected text with "
                "-----BEGIN PRIVATE KEY-----"
            ) from None


def _reason(error: Exception) -> str:
    # Not the error's text: some errors repeat their input, which may be the key.
    return getattr(error, "reason", None) or type(error).__name__

"""The certificate authority is replaced in steps; devices follow the operator's list, and believe nothing older."""

import pytest
from support.broker_links import link_to
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.authorities import (
    AuthorityStep,
    begin_authority,
    end_former_authority,
    files_of,
    issuing_authority,
    step_of,
    switch_authority,
    trusted_ca_files,
)
from foltr.broker.link import MqttLink
from foltr.broker.renewal import distribute_authorities, renew_server
from foltr.broker.trusted_cas import TrustedCas
from foltr.broker.users import withdraw_user
from foltr.core.errors import MessageError, SettingsError, UnavailableError
from foltr.core.protocol.roster import Authorities
from foltr.core.protocol.signed_documents import issue_authorities
from foltr.core.protocol.signing import SigningKey

KEY = SigningKey(bytes([7]) * 32)


def listed(server, version, key=KEY):
    """The operator's list of the authorities that are believed now."""
    certificates = [files.load().certificate_pem for files in trusted_ca_files(server.operator_dir)]
    return issue_authorities(key, Authorities(federation="fed", version=version, certificates=certificates)).signed


def step(server, change):
    """One step at the broker, which is started anew: with client certificates it reads its authorities then."""
    change(server.operator_dir)
    distribute_authorities(server.operator_dir)
    if step_of(server.operator_dir) is AuthorityStep.SWITCHED:
        renew_server(server.operator_dir, issuing_authority(server.operator_dir))
    server.stop()
    server.start()


def begin(operator_dir):
    begin_authority(operator_dir, "fed")


def link_of(known, **options):
    """A link of these credentials, or one that believes what another one does."""
    return link_to(known.address if isinstance(known, MqttLink) else BrokerAddress.of(known), **options)


async def connects(link):
    """Whether a link that believes what this one does gets in."""
    try:
        async with link_of(link, give_up_after_s=0.0) as other:
            await other.wait_connected(PATIENCE_S)
    except UnavailableError:
        return False
    return True


async def test_devices_follow_from_one_authority_to_the_next(server):
    """One that was there hears of each step; one that was off since before connects again with what is put into it."""
    here, away, stays = server.enrol("here", "away", "stays")
    link, standing = link_of(here), link_of(stays)
    believed = TrustedCas(link, KEY.public, "fed")
    step(server, begin)
    kept = believed.accept(listed(server, 1))
    assert await connects(link)
    assert await connects(link_of(away))  # nothing has changed for it yet
    TrustedCas(standing, KEY.public, "fed").accept(listed(server, 1))
    async with standing:
        await standing.wait_connected(PATIENCE_S)
        server.stop()
        await until(lambda: not standing.connected)
        step(server, switch_authority)
        await standing.wait_connected(PATIENCE_S)  # the same process, over an outage
    assert await connects(link_of(server.service("federator")))
    again = link_of(here)  # started anew, with what was kept
    TrustedCas(again, KEY.public, "fed", kept)
    assert await connects(link)
    assert await connects(again)
    assert not await connects(link_of(away))
    (new,) = server.enrol("new")
    assert await connects(link_of(new))
    old_pair = [(server.broker_dir / name).read_text() for name in ("server.crt", "server.key")]
    assert believed.accept(listed(server, 2)) is not None
    before_end = link.address.tls_material.ca
    step(server, end_former_authority)
    assert believed.accept(listed(server, 3)) is not None
    assert link.address.tls_material.ca == issuing_authority(server.operator_dir).certificate_pem != before_end
    assert [(server.broker_dir / name).read_text() for name in ("server.crt", "server.key")] == old_pair


async def test_who_has_the_former_authority_is_no_broker_any_more(server):
    """A thief of its key, in the broker's place: who has heard of the end does not connect."""
    (device,) = server.enrol("device-1")
    link = link_of(device)
    believed = TrustedCas(link, KEY.public, "fed")
    stolen = files_of(server.operator_dir, "ca").load()
    for version, change in enumerate((begin, switch_authority, end_former_authority), start=1):
        step(server, change)
        believed.accept(listed(server, version))
    assert list(files_of(server.operator_dir, "ca-former").key.parent.glob("ca-*.key")) == []
    renew_server(server.operator_dir, stolen)
    server.stop()
    server.start()
    assert not await connects(link)


async def test_a_certificate_of_the_former_authority_connects_until_it_ends(tmp_path):
    """With client certificates: revoking one works in between, and after the end none of them counts."""
    server = ProvisionedMosquitto(tmp_path, "mtls")
    try:
        kept, revoked = server.enrol("kept", "revoked")
        links = {name: link_of(each) for name, each in (("kept", kept), ("revoked", revoked))}
        believed = [TrustedCas(link, KEY.public, "fed") for link in links.values()]
        for version, change in enumerate((begin, switch_authority), start=1):
            step(server, change)
            for each in believed:
                each.accept(listed(server, version))
        assert withdraw_user(server.operator_dir, "revoked")
        server.stop()
        server.start()
        assert await connects(links["kept"])
        assert not await connects(links["revoked"])
        step(server, end_former_authority)
        for each in believed:
            each.accept(listed(server, 3))
        assert not await connects(links["kept"])
        (again,) = server.enrol("kept")
        assert await connects(link_of(again))
    finally:
        server.stop()


def test_nobody_else_says_which_authorities_count(tmp_path):
    """Neither another key, nor an older list; credentials that were written since know better than what was kept."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    (device,) = server.enrol("device-1")
    link = link_of(device)
    believed = TrustedCas(link, KEY.public, "fed")
    given = link.address.tls_material.ca
    begin(server.operator_dir)
    with pytest.raises(MessageError, match="not signed"):
        believed.accept(listed(server, 5, SigningKey(bytes([8]) * 32)))
    assert link.address.tls_material.ca == given
    kept = believed.accept(listed(server, 5))
    assert link.address.tls_material.ca != given
    assert believed.accept(listed(server, 4)) is None
    nonsense = Authorities(federation="fed", version=9, certificates=["x"])
    with pytest.raises(MessageError, match="certificate"):
        believed.accept(issue_authorities(KEY, nonsense).signed)
    (anew,) = server.enrol("device-1")
    newer = link_of(anew)
    TrustedCas(newer, KEY.public, "fed", kept)
    assert newer.address.tls_material.ca == anew.ca


@pytest.mark.parametrize("n_writes", range(1, 6))
def test_a_switch_that_was_interrupted_is_completed(tmp_path, monkeypatch, n_writes):
    """Whichever file was the last to be written: doing it again leaves the same, and no key is lost before."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    begin(server.operator_dir)
    old, new = (files_of(server.operator_dir, stem).load() for stem in ("ca", "ca-next"))
    from foltr.broker import authorities

    write, left = authorities.replace_file, [n_writes]

    def interrupted(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(authorities, "replace_file", interrupted)
        try:
            switch_authority(server.operator_dir)
        except OSError:
            switch = False
        else:
            switch = True
    if not switch:
        switch_authority(server.operator_dir)
    assert files_of(server.operator_dir, "ca").load() == new
    assert files_of(server.operator_dir, "ca-former").load() == old
    assert step_of(server.operator_dir) is AuthorityStep.SWITCHED


def test_steps_are_taken_in_order(tmp_path):
    """Each says what comes before it, and changes nothing."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    for change in (switch_authority, end_former_authority):
        with pytest.raises(SettingsError, match="authority"):
            change(server.operator_dir)
    begin(server.operator_dir)
    for change in (begin, end_former_authority):
        with pytest.raises(SettingsError, match="authority"):
            change(server.operator_dir)
    assert step_of(server.operator_dir) is AuthorityStep.BEGUN
    server.provision()  # `foltr broker config` again keeps both
    assert step_of(server.operator_dir) is AuthorityStep.BEGUN

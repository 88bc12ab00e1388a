"""TLS: what arrives, into both kinds of protocol, with reading paused and resumed, and the limits of what is held."""

import ssl

import pytest
from certificates import every_version
from connecting import KINDS, MORE_THAN_FITS
from recording import RECORDERS, BufferedRecorder, Recorder, when_data_comes
from secured import every_side
from stepping import run_once

every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)


@every_side
@every_version
@every_protocol
def test_data_both_ways(tls, side, version, make_protocol):
    secured = tls.open(side, make_protocol(), version=version)
    secured.deliver(b"hello")
    secured.transport.write(b"and back")
    assert secured.receive(8) == b"and back"
    secured.deliver(b"again")
    assert bytes(secured.protocol.received) == b"helloagain"
    assert secured.protocol.calls == ["connection_made", "data"]

package agents

import (
	"net/netip"
	"testing"
	"time"
)

// arrival is one new stream of an instance.
type arrival struct {
	after time.Duration // since the previous arrival
	comer string        // a letter for the machine, and its agent's run
	want  verdict
	alone bool // the previous stream has already ended
}

func machineOf(text string) machine {
	hosts := map[byte]string{'A': "10.0.0.1", 'B': "10.0.0.2", 'C': "10.0.0.3", 'n': "192.0.2.1"}
	return machine{host: netip.MustParseAddr(hosts[text[0]]), run: text[1:]}
}

func TestClaims(t *testing.T) {
	const soon = time.Second
	for name, c := range map[string]struct {
		known  string // the machines with an address known to the provider
		stream []arrival
		shared bool
	}{
		"one machine, reconnecting with a connection left over": {"", []arrival{
			{comer: "A1"}, {soon, "A1", admit, false}, {soon, "A1", admit, false}, {soon, "A1", admit, false}, {soon, "A1", admit, false},
		}, false},
		"one machine whose agent restarts": {"", []arrival{
			{comer: "A1"}, {soon, "A2", admit, false}, {soon, "A3", admit, false}, {soon, "A4", admit, false},
		}, false},
		"one machine at another address after a reboot": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "B2", admit, false}, {soon, "B3", admit, false},
		}, false},
		"one that was away, and came back to its first address": {"", []arrival{
			{comer: "A1"}, {soon, "B1", admit, false}, {soon, "A1", admit, false}, {time.Hour, "B1", admit, false}, {soon, "A1", admit, false},
		}, false},
		"one with two addresses, whose streams end before the next": {"", []arrival{
			{comer: "A1"}, {soon, "B1", admit, true}, {soon, "A1", admit, true}, {soon, "B1", admit, true}, {soon, "A1", admit, true},
		}, false},
		"two, and the provider knows neither": {"C", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {time.Minute, "B2", refuse, false},
			{time.Minute, "A1", admit, false}, {time.Minute, "B2", refuse, false},
		}, true},
		"two, and the first has the address": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {time.Minute, "B2", refuse, true},
		}, true},
		"two, and the newcomer has the address": {"B", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", prefer, false}, {soon, "A1", refuse, false},
			{time.Minute, "A1", refuse, true}, {time.Minute, "B2", admit, false},
		}, true},
		"two, and the provider has the addresses of both": {"AB", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false},
		}, true},
		"two behind one address": {"", []arrival{
			{comer: "n1"}, {soon, "n2", admit, false}, {soon, "n1", admit, false}, {soon, "n2", refuse, false}, {soon, "n1", admit, false},
			{time.Minute, "n2", refuse, false},
		}, true},
		"two with the same memory": {"", []arrival{
			{comer: "A1"}, {soon, "B1", admit, false}, {soon, "A1", admit, false}, {soon, "B1", refuse, false},
		}, true},
		"the refused one's agent restarts": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {soon, "B3", refuse, false},
		}, true},
		"the agent of the one that stays restarts": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {soon, "A2", admit, false},
			{soon, "B2", refuse, false},
		}, true},
		"the established one ends, and nothing speaks against the other": {"", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {soon, "B2", admit, true},
		}, true},
		"a third": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false},
			{soon, "C3", admit, false}, {soon, "A1", admit, false}, {soon, "C3", refuse, false},
		}, true},
		"the copy is gone for long": {"A", []arrival{
			{comer: "A1"}, {soon, "B2", admit, false}, {soon, "A1", admit, false}, {soon, "B2", refuse, false}, {sharedFor, "A1", admit, true},
		}, false},
	} {
		var claims claims
		var holder *machine
		var known []netip.Addr
		for _, m := range c.known {
			known = append(known, machineOf(string(m)).host)
		}
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		for n, a := range c.stream {
			if now = now.Add(a.after); a.alone {
				holder = nil
			}
			comer := machineOf(a.comer)
			got, _ := claims.arrive(comer, holder, known, now)
			if got != a.want {
				t.Errorf("%s: stream %d of %s: %d, want %d (%+v)", name, n, a.comer, got, a.want, claims)
			}
			if got != refuse {
				holder = &comer
			}
		}
		if claims.shared() != c.shared {
			t.Errorf("%s: shared is %t", name, claims.shared())
		}
	}
}

// TestProviderChangesItsMind: the provider now lists the address of a refused machine.
func TestProviderChangesItsMind(t *testing.T) {
	var c claims
	a, b := machineOf("A1"), machineOf("B2")
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, m := range []machine{b, a} {
		other := a
		if m == a {
			other = b
		}
		c.arrive(m, &other, []netip.Addr{a.host}, now)
	}
	if v, fresh := c.arrive(b, &a, []netip.Addr{a.host}, now); v != refuse || !fresh {
		t.Fatalf("%d, %t", v, fresh)
	}
	if v, _ := c.arrive(b, nil, []netip.Addr{b.host}, now); v != admit {
		t.Errorf("the provider's own machine is refused while nothing holds its place: %d", v)
	}
	v, _ := c.arrive(a, &b, []netip.Addr{b.host}, now)
	if v == prefer {
		t.Errorf("the other one is preferred: %d", v)
	}
}

// TestClaimsAreBounded: the number of remembered machines is bounded.
func TestClaimsAreBounded(t *testing.T) {
	var c claims
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	keeper := machineOf("A1")
	for n := range 100 {
		one := machine{host: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), run: "r"}
		now = now.Add(time.Second)
		c.arrive(one, &keeper, nil, now)
		c.arrive(keeper, &one, nil, now)
		c.arrive(one, &keeper, nil, now)
	}
	if len(c.refused) > maxRefused || len(c.displaced) > maxRefused {
		t.Errorf("%d refused, %d displaced", len(c.refused), len(c.displaced))
	}
	if last := (machine{host: netip.AddrFrom4([4]byte{10, 1, 0, 99}), run: "r"}); !c.recognises(last, &keeper) {
		t.Error("the last one is not known any more")
	}
}

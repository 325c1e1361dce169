package rpc_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
)

func TestParseAddrs(t *testing.T) {
	for list, want := range map[string][]string{
		"10.0.0.1:8994":                    {"10.0.0.1:8994"},
		"b:2, a:1,b:2":                     {"b:2", "a:1"},
		"[fd00:0::1]:1":                    {"[fd00::1]:1"},
		"Nstance.Internal:08994":           {"nstance.internal:8994"},
		"my_box:1,[fe80::1%eth0]:1":        {"my_box:1", "[fe80::1%eth0]:1"},
		" 10.0.0.1:1 , [::ffff:1.2.3.4]:2": {"10.0.0.1:1", "[::ffff:1.2.3.4]:2"},
	} {
		got, err := rpc.ParseAddrs("FIELD", list)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseAddrs(%q) = %v, %v, want %v", list, got, err, want)
		}
	}
}

func TestParseAddrsNamesWhatIsWrong(t *testing.T) {
	for list, quoted := range map[string]string{
		"":                             "no address",
		"  ":                           "no address",
		"a:1,":                         `empty address in "a:1,"`,
		"a:1,b":                        `"b"`,
		"a:1,b:x":                      `"b:x"`,
		"a:1,b:0":                      `"b:0"`,
		"a:1,:2":                       `":2"`,
		"a:65536":                      `"a:65536"`,
		"a:-1":                         `"a:-1"`,
		"http://a:1":                   `"http://a:1"`,
		"fd00::1:8994":                 `"fd00::1:8994"`,
		"a b:1":                        `"a b:1"`,
		"-a:1":                         `"-a:1"`,
		"a..b:1":                       `"a..b:1"`,
		strings.Repeat("a:1,", 65):     "66 addresses",
		strings.Repeat("a", 64) + ":1": "has no valid host",
	} {
		got, err := rpc.ParseAddrs("NSTANCE_SERVER_AGENT_ADDR", list)
		if err == nil || !strings.HasPrefix(err.Error(), "NSTANCE_SERVER_AGENT_ADDR: ") || !strings.Contains(err.Error(), quoted) {
			t.Errorf("ParseAddrs(%q) = %v, %v, want an error that names the field and %s", list, got, err, quoted)
		}
	}
}

func FuzzParseAddrs(f *testing.F) {
	for _, seed := range []string{"", "a:1", "a:1,b:2", "[::1]:1", "[fe80::1%eth0]:1", ":0", "a:1,,", "\x00:1", "[a]:1", "ａ:1", "1.2.3:4",
		"[fe80::1%a b]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		addrs, err := rpc.ParseAddrs("field", list)
		if err != nil {
			if len(addrs) > 0 || !strings.HasPrefix(err.Error(), "field: ") || len(err.Error()) > 1000 {
				t.Fatalf("%v beside %q", addrs, err)
			}
			return
		}
		again, err := rpc.ParseAddrs("field", strings.Join(addrs, ","))
		if err != nil || !slices.Equal(addrs, again) {
			t.Fatalf("%q gave %v, which gives %v, %v", list, addrs, again, err)
		}
		for _, addr := range addrs {
			host, port, err := net.SplitHostPort(addr)
			if err != nil || host == "" || port == "0" || strings.ContainsAny(host, " ,/\x00") {
				t.Fatalf("%q gave the address %q", list, addr)
			}
		}
	})
}

func TestBackoff(t *testing.T) {
	low, high := func() float64 { return 0 }, func() float64 { return 0.999999 }
	bounds := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
	for attempt, bound := range bounds {
		if got := rpc.Backoff().Draw(attempt+1, low); got != 200*time.Millisecond {
			t.Errorf("attempt %d waits at least %s", attempt, got)
		}
		if got := rpc.Backoff().Draw(attempt+1, high); got > bound || got < bound-time.Millisecond {
			t.Errorf("attempt %d waits at most %s, want %s", attempt, got, bound)
		}
	}
	for _, attempt := range []int{-1, 63, 64, 1 << 30} {
		if got := rpc.Backoff().Draw(attempt+1, high); got < 200*time.Millisecond || got > 10*time.Second {
			t.Errorf("attempt %d waits %s", attempt, got)
		}
	}
	short := rpc.Backoff()
	if short.Limit = 2 * time.Second; short.Draw(10, high) > 2*time.Second || short.Draw(10, high) < 1900*time.Millisecond {
		t.Errorf("with a limit of 2s a client waits %s, want just under it", short.Draw(10, high))
	}
	if short.Limit = 0; short.Draw(1, high) != 200*time.Millisecond {
		t.Errorf("the shortest wait is %s, want 200ms", short.Draw(1, high))
	}
}

package spot_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/agent/spot"
	"github.com/nstance/nstance/pkg/fleet"
)

const (
	lifecycle   = "instance-life-cycle"
	action      = "spot/instance-action"
	preemptible = "scheduling/preemptible"
	model       = "scheduling/provisioning-model"
	preempted   = "preempted"
)

// spotInstance returns a machine that AWS may reclaim.
func spotInstance(t *testing.T) *metadata {
	m := newMetadata("aws").up(t)
	m.set(lifecycle, "spot")
	return m
}

func announce(at time.Time) string {
	return `{"action": "terminate", "time": "` + at.UTC().Format(time.RFC3339) + `"}`
}

func TestNoticeOfAWS(t *testing.T) {
	for _, provider := range []string{"aws", "auto"} {
		t.Run(provider, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := spotInstance(t)
				w := m.watch(t, provider)
				settle(10 * time.Minute)
				if len(w.seen()) != 0 {
					t.Fatalf("noticed %v before there was anything", w.seen())
				}
				end := time.Now().Add(2 * time.Minute)
				m.set(action, announce(end))
				settle(2 * time.Second) // one interval
				if got := w.seen(); len(got) != 1 || got[0] != (fleet.Notice{Source: "aws-spot", Action: "terminate", At: end.UTC()}) {
					t.Fatalf("noticed %v, want the end at %s", got, end)
				}
				settle(time.Minute)
				if !w.over() || len(w.seen()) != 1 {
					t.Errorf("over %t after %v, want one notice to be enough", w.over(), w.seen())
				}
				if m.denied != 0 || m.issued != 1 {
					t.Errorf("%d requests were denied, %d tokens were asked for, want 0 and 1", m.denied, m.issued)
				}
			})
		})
	}
}

// A notice without a time is reported at once, and again once its time is known.
func TestNoticeWhoseTimeComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spotInstance(t)
		w := m.watch(t, "aws")
		m.set(action, `{"action":"hibernate"}`)
		settle(time.Minute)
		end := time.Now().Add(time.Minute)
		m.set(action, announce(end))
		settle(time.Minute)
		got := w.seen()
		if len(got) != 2 || got[0].Action != "hibernate" || !got[0].At.IsZero() || !got[1].At.Equal(end.UTC()) || !w.over() {
			t.Errorf("noticed %v", got)
		}
	})
}

func TestNoticeOfGCP(t *testing.T) {
	for _, provider := range []string{"gcp", "auto"} {
		for name, values := range map[string]map[string]string{
			"preemptible": {preemptible: "TRUE"},
			"spot":        {preemptible: "FALSE", model: "SPOT"},
		} {
			t.Run(provider+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMetadata("gcp").up(t)
					for path, value := range values {
						m.set(path, value)
					}
					m.set(preempted, "FALSE")
					w := m.watch(t, provider)
					settle(10 * time.Minute)
					if len(w.seen()) != 0 {
						t.Fatalf("noticed %v before there was anything", w.seen())
					}
					m.set(preempted, "TRUE")
					settle(2 * time.Second)
					got := w.seen()
					if len(got) != 1 || got[0].Source != "gcp-preemption" || got[0].Action != "terminate" {
						t.Fatalf("noticed %v", got)
					}
					if left := time.Until(got[0].At); left < 27*time.Second || left > 30*time.Second {
						t.Errorf("the end is in %s, want half a minute from the notice", left)
					}
				})
			})
		}
	}
}

// On machines that can't be reclaimed, the watch ends after finding that out.
func TestMachinesThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		cloud, path, value string
	}{
		"on demand":   {"aws", lifecycle, "on-demand"},
		"scheduled":   {"aws", lifecycle, "scheduled"},
		"not lent":    {"gcp", preemptible, "FALSE"},
		"gcp's own":   {"gcp", preemptible, "FALSE\n"},
		"reservation": {"aws", lifecycle, "capacity-block"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMetadata(c.cloud).up(t)
				m.set(c.path, c.value)
				w := m.watch(t, "auto")
				settle(time.Second)
				if !w.over() || m.requests() > 3 || w.log.Len() != 0 {
					t.Errorf("over %t, requests %v, log %q", w.over(), m.asked, w.log.String())
				}
			})
		})
	}
}

func TestOtherProvidersAreNotAsked(t *testing.T) {
	for _, provider := range []string{"", "docker", "process", "none"} {
		synctest.Test(t, func(t *testing.T) {
			m := spotInstance(t)
			w := m.watch(t, provider)
			synctest.Wait()
			if !w.over() || len(m.dials) != 0 {
				t.Errorf("%q: over %t, dialled %v", provider, w.over(), m.dials)
			}
		})
	}
}

func TestAutoGivesUpQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetadata("aws")
		w := m.watch(t, "auto")
		settle(10 * time.Minute)
		if !w.over() || len(m.dials) < 10 || len(m.dials) > 30 || w.log.Len() != 0 {
			t.Errorf("over %t after %d dials, log %q", w.over(), len(m.dials), w.log.String())
		}
		for _, addr := range m.dials {
			if addr != metadataAddr {
				t.Errorf("dialled %s", addr)
			}
		}
	})
}

func TestNetworkThatComesUpLate(t *testing.T) {
	for _, provider := range []string{"auto", "aws"} {
		synctest.Test(t, func(t *testing.T) {
			m := newMetadata("aws")
			w := m.watch(t, provider)
			settle(2 * time.Minute)
			m.up(t).set(lifecycle, "spot")
			m.set(action, announce(time.Now().Add(3*time.Minute)))
			settle(time.Minute + 3*time.Second)
			if len(w.seen()) != 1 {
				t.Errorf("%s: noticed %v", provider, w.seen())
			}
		})
	}
}

// A configured provider that does not answer is retried, and logged at a limited rate.
func TestToldProviderThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetadata("gcp")
		w := m.watch(t, "gcp")
		settle(24 * time.Hour)
		if w.over() || w.warnings() < 100 || w.warnings() > 145 || len(m.dials) > 1500 {
			t.Errorf("over %t, %d warnings, %d dials in a day", w.over(), w.warnings(), len(m.dials))
		}
	})
}

func TestTokensAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spotInstance(t)
		m.interval = time.Minute
		w := m.watch(t, "aws")
		settle(7*time.Hour + time.Second)
		if m.denied != 0 || m.issued != 3 || w.warnings() != 0 {
			t.Errorf("in seven hours %d requests were denied and %d tokens used, want 0 and 3: %s", m.denied, m.issued, w.log.String())
		}
		m.change(func() { clear(m.tokens) }) // the service has lost its tokens
		m.set(action, announce(time.Now().Add(time.Hour)))
		settle(time.Minute)
		if len(w.seen()) != 1 || m.denied != 1 || m.issued != 4 {
			t.Errorf("noticed %v after %d denials, %d tokens", w.seen(), m.denied, m.issued)
		}
	})
}

// TestTrouble: errors of the service never end the watch, count as a notice, or fill the log;
// a later notice is seen.
func TestTrouble(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	body := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, action) {
				return false
			}
			io.WriteString(w, text)
			return true
		}
	}
	for name, spoil := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"error":            status(http.StatusInternalServerError),
		"busy":             status(http.StatusServiceUnavailable),
		"throttled":        status(http.StatusTooManyRequests),
		"denied for ever":  status(http.StatusUnauthorized),
		"switched off":     status(http.StatusForbidden),
		"empty":            body(""),
		"garbage":          body("\x00\xff<html>"),
		"another document": body(`[{"action":"terminate"}]`),
		"unknown action":   body(`{"action":"rebalance","time":"2026-01-01T00:00:00Z"}`),
		"endless":          body(`{"action":"terminate","x":"` + strings.Repeat("x", 64<<10) + `"}`),
		"hangs":            func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
		"hangs in the body": func(w http.ResponseWriter, r *http.Request) bool {
			io.WriteString(w, `{"action":`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		},
		"breaks": func(w http.ResponseWriter, _ *http.Request) bool {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
			return true
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://elsewhere.example"+r.URL.Path, http.StatusFound)
			return true
		},
		"huge header": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-Huge", strings.Repeat("x", 64<<10))
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := spotInstance(t)
				w := m.watch(t, "aws")
				settle(time.Second)
				m.change(func() { m.spoil = spoil })
				settle(30 * time.Minute)
				if w.over() || len(w.seen()) != 0 {
					t.Fatalf("over %t, noticed %v", w.over(), w.seen())
				}
				if w.warnings() < 2 || w.warnings() > 4 || w.log.Len() > 4<<10 {
					t.Errorf("in half an hour: %s", w.log.String())
				}
				m.change(func() { m.spoil = nil })
				m.set(action, announce(time.Now().Add(2*time.Minute)))
				settle(5 * time.Second)
				if len(w.seen()) != 1 {
					t.Errorf("noticed %v after the trouble", w.seen())
				}
				for _, addr := range m.dials {
					if addr != metadataAddr {
						t.Errorf("dialled %s", addr)
					}
				}
			})
		})
	}
}

// TestSlowAnswers: a slow response is not an error.
func TestSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := spotInstance(t)
		m.spoil = func(http.ResponseWriter, *http.Request) bool { time.Sleep(1500 * time.Millisecond); return false }
		m.set(action, announce(time.Now().Add(2*time.Minute)))
		w := m.watch(t, "aws")
		settle(6 * time.Second)
		if len(w.seen()) != 1 {
			t.Errorf("noticed %v", w.seen())
		}
	})
}

// TestImpostors: a response that does not look like the cloud's is ignored.
func TestImpostors(t *testing.T) {
	for name, c := range map[string]struct {
		cloud string
		spoil func(http.ResponseWriter, *http.Request) bool
	}{
		"without Google's header": {"gcp", func(w http.ResponseWriter, _ *http.Request) bool { io.WriteString(w, "TRUE"); return true }},
		"a portal": {"aws", func(w http.ResponseWriter, _ *http.Request) bool {
			io.WriteString(w, "<html>log in</html>")
			return true
		}},
		"a token of many lines": {"aws", func(w http.ResponseWriter, _ *http.Request) bool { io.WriteString(w, "a\r\nb: c"); return true }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMetadata(c.cloud).up(t)
				m.spoil = c.spoil
				w := m.watch(t, "auto")
				settle(10 * time.Minute)
				if !w.over() || len(w.seen()) != 0 {
					t.Errorf("over %t, noticed %v", w.over(), w.seen())
				}
			})
		})
	}
}

// TestProxiesAreNotUsed: a proxy's response would be about another machine.
func TestProxiesAreNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	t.Setenv("http_proxy", "http://proxy.example:3128")
	synctest.Test(t, func(t *testing.T) {
		m := spotInstance(t)
		m.watch(t, "aws")
		settle(time.Minute)
		for _, addr := range m.dials {
			if addr != metadataAddr {
				t.Errorf("dialled %s", addr)
			}
		}
	})
}

func TestEndOfTheContext(t *testing.T) {
	for name, prepare := range map[string]func(*metadata){
		"searching": func(m *metadata) { m.listener = nil },
		"asking": func(m *metadata) {
			m.spoil = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		},
		"polling": func(*metadata) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := spotInstance(t)
				m.change(func() { prepare(m) })
				w := m.watch(t, "aws")
				settle(time.Minute + 500*time.Millisecond)
				w.stop()
				synctest.Wait()
				if !w.over() {
					t.Error("the watch goes on")
				}
			})
		})
	}
}

func FuzzParseAction(f *testing.F) {
	for _, seed := range []string{
		`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`, `{"action":"stop"}`, `{"action":"hibernate","time":7}`,
		`{"action":"terminate","time":"0000-01-01T00:00:00Z"}`, `{"action":"terminate","time":"2026-01-01T00:00:00+14:00"}`,
		`{"action":"noop"}`, `[]`, `null`, ``, "\x00", `{"action":{"action":"stop"}}`, strings.Repeat("[", 4096),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := spot.ParseAction(data)
		if err != nil {
			if n != (fleet.Notice{}) {
				t.Errorf("%q is an error and a notice: %v", data, n)
			}
			return
		}
		var said map[string]any
		if json.Unmarshal(data, &said) != nil {
			t.Fatalf("%q is a notice and no JSON object", data)
		}
		if n.Action != "terminate" && n.Action != "stop" && n.Action != "hibernate" {
			t.Errorf("%q has action %q", data, n.Action)
		}
		if !n.At.IsZero() && (n.At.Year() < 1970 || n.At.Year() > 9999 || n.At.Location() != time.UTC) {
			t.Errorf("%q has time %s", data, n.At)
		}
	})
}

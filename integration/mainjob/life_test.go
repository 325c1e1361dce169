//go:build integration

package mainjob

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLife tests what an instance receives, and how it is deleted.
func TestLife(t *testing.T) {
	tellEverywhere(t,
		story{"10 files and certificates reach every agent without a rotation", delivers},
		story{"11 changed vars are pushed, a file that was lost comes back", pushes},
		story{"12 a change of what machines are built from rotates them one at a time", rotates},
		story{"13 scale-in drains until the drain is acknowledged", drains},
		story{"14 an on-demand instance is extra, and its key names it for ever", onDemand},
		story{"14 a managed instance that is deleted is replaced first", replacesDeleted},
		story{"19 instances that are too old are replaced", expires},
	)
	t.Run("spot", func(t *testing.T) {
		tell(t, "process", false, story{"17 a spot notice brings the replacement at once, and once", announced})
	})
}

const withFiles = `"certificates": { "node": { "kind": "peer", "cn": "node:{{ .Instance.ID }}",
  "dns": ["{{ .Instance.Hostname }}"], "ttl": 24 } },
  "templates": {`

const theFiles = `"vars": { "color": "blue" }, "files": {
      "node.crt": { "kind": "certificate", "template": "node", "key": { "source": "agent", "name": "node" } },
      "app.env": { "kind": "env", "values": { "COLOR": "{{ .Vars.color }}", "SHARD": "{{ .Server.Shard }}" } },
      "app.json": { "kind": "json", "content": { "id": "{{ .Instance.ID }}" } },
      "login.json": { "kind": "secret", "source": "story-login" },
      "app.conf": { "kind": "string", "content": "color = {{ .Vars.color }}\n" }
    }, "subnet_pool": "workers"`

// configureFiles configures the example's template files, for the duration of a story.
func configureFiles(s *stack) {
	s.t.Helper()
	login := filepath.Join(s.t.TempDir(), "login.json")
	if err := os.WriteFile(login, []byte(`{"user": "story"}`), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.admin("cluster", "secret", "put", "story-login", login)
	s.reconfigure("dev-1", `"templates": {`, withFiles, `"subnet_pool": "workers"`, theFiles)
}

func delivers(s *stack) {
	before := s.running("dev-1")
	configureFiles(s)
	for _, id := range before {
		cert := leaf(s, s.receives("dev-1", id, "node.crt", holds("BEGIN CERTIFICATE")))
		key, ok := s.onMachine("dev-1", id, "keys/node.key")
		if !ok {
			s.t.Fatalf("%s has no key", id)
		}
		block, _ := pem.Decode([]byte(key))
		private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			s.t.Fatal(err)
		}
		if !private.(ed25519.PrivateKey).Public().(ed25519.PublicKey).Equal(cert.PublicKey) || cert.Subject.CommonName != "node:"+id {
			s.t.Errorf("the certificate of %s is %s, for another key or instance", id, cert.Subject)
		}
		s.receives("dev-1", id, "app.env", holds("blue"))
		s.receives("dev-1", id, "login.json", holds("story"))
		s.receives("dev-1", id, "app.json", func(text string) bool {
			var v struct{ ID string }
			return json.Unmarshal([]byte(text), &v) == nil && v.ID == id
		})
	}
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("files rotated the fleet from %v to %v", before, after)
	}
}

func leaf(s *stack, text string) *x509.Certificate {
	s.t.Helper()
	block, _ := pem.Decode([]byte(text))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	return cert
}

func pushes(s *stack) {
	configureFiles(s)
	before := s.running("dev-1")
	for _, id := range before {
		s.receives("dev-1", id, "app.conf", holds("blue"))
	}
	s.reconfigure("dev-1", `"color": "blue"`, `"color": "green"`)
	for _, id := range before {
		s.receives("dev-1", id, "app.conf", holds("green"))
		s.receives("dev-1", id, "app.env", holds("green"))
	}
	s.eventually("every instance has confirmed one hash", func() (bool, string) {
		out := s.admin("instance", "list", "--shard", "dev-1", "-o", "json")
		var all []struct {
			Hash string `json:"config_hash"`
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return false, err.Error()
		}
		return len(all) == 2 && all[0].Hash != "" && all[0].Hash == all[1].Hash, out
	})
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("vars rotated the fleet from %v to %v", before, after)
	}
}

func rotates(s *stack) {
	before := s.running("dev-1")
	stop, most := s.mostMachines("dev-1")
	// The config stays: reverting it would rotate the instances again, during the next story.
	s.write("dev-1", s.with("dev-1", `"subnet_pool": "workers"`, `"args": { "env": { "DEV_BUILD": "2" } }, "subnet_pool": "workers"`))
	s.refresh("dev-1")
	s.eventually("all are rotated", func() (bool, string) {
		now := s.running("dev-1")
		return len(now) == 2 && !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) }), strings.Join(now, " ")
	})
	s.settle("dev-1", 2)
	stop()
	if n := most.Load(); n > 4 { // size, one surplus, and one that drains
		s.t.Errorf("%d machines at one time", n)
	}
	if reasons := s.reasons("dev-1", before); reasons != "infra-drift infra-drift" {
		s.t.Errorf("the old ones went for %q", reasons)
	}
}

// mostMachines counts machines until it is stopped, and returns the maximum.
func (s *stack) mostMachines(shard string) (stop func(), most *atomic.Int64) {
	most = &atomic.Int64{}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				most.Store(max(most.Load(), int64(s.machines(shard))))
				time.Sleep(5 * time.Millisecond) // sampling
			}
		}
	}()
	return func() { close(end); <-ended }, most
}

// reasons returns why instances were deleted, ordered by id.
func (s *stack) reasons(shard string, ids []string) string {
	s.t.Helper()
	var out []string
	for _, i := range s.instances(shard, "--deleted") {
		if slices.Contains(ids, i.ID) {
			out = append(out, i.Reason)
		}
	}
	return strings.Join(out, " ")
}

func drains(s *stack) {
	s.reconfigure("dev-1", `"default_drain_timeout": "2s"`, `"default_drain_timeout": "10m"`)
	s.scale("dev-1", 3)
	s.quiet("dev-1", 3)
	oldest := s.running("dev-1")[0]
	s.admin("group", "scale", "web", "2", "--shard", "dev-1")
	s.eventually(oldest+" drains", func() (bool, string) {
		out := s.admin("instance", "drain", "--shard", "dev-1", "-o", "json")
		return strings.Contains(out, oldest), out
	})
	if n := s.machines("dev-1"); n != 3 {
		s.t.Errorf("%d machines while one of 3 drains", n)
	}
	s.dev("kill", "dev-1") // the drain outlives its leader
	s.dev("start", "dev-1")
	s.admin("instance", "drain", "--once", "--shard", "dev-1", "--", "true")
	s.eventually("the drained one is gone", func() (bool, string) {
		n := s.machines("dev-1")
		return n == 2, fmt.Sprint(n)
	})
	s.admin("instance", "ack", oldest) // a repetition is harmless
}

// quiet waits until a shard has exactly this many machines, without creates and deletes in
// progress.
func (s *stack) quiet(shard string, n int) {
	s.t.Helper()
	s.settle(shard, n)
	s.eventually(fmt.Sprintf("%s has %d machines", shard, n), func() (bool, string) {
		have := s.machines(shard)
		return have == n, fmt.Sprint(have)
	})
}

func onDemand(s *stack) {
	s.quiet("dev-1", 2)
	create := func() []instance {
		var all []instance
		out := s.admin("instance", "create", "web", "--key", "story-14-"+s.provider, "--shard", "dev-1", "-o", "json")
		if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
			s.t.Fatalf("create: %v: %s", err, out)
		}
		return all
	}
	id := create()[0].ID
	s.eventually("the instance runs", func() (bool, string) {
		all := s.running("dev-1")
		return slices.Contains(all, id) && len(all) == 3, strings.Join(all, " ")
	})
	if again := create()[0].ID; again != id {
		s.t.Errorf("the same key made %s and %s", id, again)
	}
	if g, _ := s.web("dev-1"); g.Size != 2 || g.ActualSize != 2 {
		s.t.Errorf("the group counts the extra one: %+v", g)
	}
	s.admin("instance", "delete", "--key", "story-14-"+s.provider, "--shard", "dev-1")
	s.eventually("it is gone, and no other took its place", func() (bool, string) {
		n := s.machines("dev-1")
		return n == 2, fmt.Sprint(n)
	})
	s.settle("dev-1", 2)
}

func replacesDeleted(s *stack) {
	s.quiet("dev-1", 2)
	victim := s.running("dev-1")[0]
	s.admin("instance", "delete", victim)
	s.eventually(victim+" is replaced", func() (bool, string) {
		now := s.running("dev-1")
		return len(now) == 2 && !slices.Contains(now, victim), strings.Join(now, " ")
	})
	s.settle("dev-1", 2)
}

func expires(s *stack) {
	before := s.running("dev-1")
	s.reconfigure("dev-1", `"server": {`, `"server": { "expiry": { "eligible_age": "5s" },`)
	s.eventually("all that were there have been replaced", func() (bool, string) {
		now := s.running("dev-1")
		return !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) }), strings.Join(now, " ")
	})
	if reasons := s.reasons("dev-1", before); !strings.Contains(reasons, "expired") {
		s.t.Errorf("they went for %q", reasons)
	}
}

// announced runs one group's agents with a metadata service that requires tokens and announces the
// termination of the machine on request.
func announced(s *stack) {
	// Tokens increase, so that the notice does not apply to instances created after it.
	var tokens, noticed atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, tokens.Add(1))
	})
	mux.HandleFunc("GET /latest/meta-data/", func(w http.ResponseWriter, r *http.Request) {
		token, err := strconv.ParseInt(r.Header.Get("X-aws-ec2-metadata-token"), 10, 64)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/instance-life-cycle"):
			fmt.Fprint(w, "spot")
		case strings.HasSuffix(r.URL.Path, "/spot/instance-action") && token <= noticed.Load():
			fmt.Fprintf(w, `{"action": "terminate", "time": "%s"}`, time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	imds := httptest.NewUnstartedServer(mux)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	imds.Listener = l
	imds.Start()
	s.t.Cleanup(imds.Close)
	s.reconfigure("dev-1", `"web": {`, `"spot": { "template": "knd", "size": 1, "drain_timeout": "10m", "args": { "env": {
		"NSTANCE_PROVIDER": "aws", "NSTANCE_SPOT_POLL_INTERVAL": "200ms", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "`+imds.URL+`" } } }, "web": {`)
	spot := func() (ids []string) {
		for _, i := range s.instances("dev-1", "--group", "spot") {
			ids = append(ids, i.ID+" "+string(i.Phase))
		}
		return ids
	}
	s.eventually("the group has its instance", func() (bool, string) {
		all := spot()
		return len(all) == 1 && strings.HasSuffix(all[0], "running"), fmt.Sprint(all)
	})
	victim, _, _ := strings.Cut(spot()[0], " ")
	noticed.Store(tokens.Load())
	s.eventually("the replacement is there while the old one drains", func() (bool, string) {
		return len(s.logs("dev-1", "replacement started", "replaces="+victim)) > 0, fmt.Sprint(spot())
	})
	s.eventually("one runs, one drains", func() (bool, string) {
		all := spot()
		return len(all) == 2 && strings.HasSuffix(all[0], "draining") && strings.HasSuffix(all[1], "running"), fmt.Sprint(all)
	})
	if n := len(s.logs("dev-1", "replacement started", "replaces="+victim)); n != 1 {
		s.t.Errorf("the notice was followed by %d replacements", n)
	}
	s.admin("instance", "ack", victim)
}

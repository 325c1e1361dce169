package cli_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	fullToken = "the-token-that-may-change-things"
	readToken = "the-token-that-may-only-read-them"
)

// served is a running serve command.
type served struct {
	url  string
	log  chan string // what it wrote to standard error since it listens, by line
	stop func() int
	http *http.Client
}

// serve starts serve and waits until it listens.
func (c *fixture) serve(args ...string) *served {
	c.t.Helper()
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, cli.Env{
			Args: append([]string{"serve", "--bind", "127.0.0.1:0"}, args...), Getenv: func(name string) string { return c.env[name] },
			Stdout: io.Discard, Stderr: w, Now: time.Now, Random: rand.Reader, Version: "v0-test",
		})
		w.Close()
	}()
	s := &served{log: make(chan string, 10000), http: &http.Client{Transport: &http.Transport{}}}
	var before strings.Builder
	lines := bufio.NewScanner(r)
	for s.url == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), " at http"); ok {
			s.url = "http" + url
		}
		before.WriteString(lines.Text() + "\n")
	}
	if s.url == "" {
		c.t.Fatalf("serve exited with %d: %s", <-code, before.String())
	}
	go func() {
		for lines.Scan() {
			s.log <- lines.Text()
		}
		close(s.log)
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	c.t.Cleanup(func() {
		s.http.CloseIdleConnections()
		if code := s.stop(); code != cli.ExitOK {
			c.t.Errorf("serve exited with %d", code)
		}
	})
	return s
}

// tokens writes the two token files, and returns the flags for them.
func (c *fixture) tokens() []string {
	c.t.Helper()
	dir := c.t.TempDir()
	full, read := filepath.Join(dir, "full"), filepath.Join(dir, "read")
	for path, token := range map[string]string{full: fullToken, read: readToken} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return []string{"--token-file", full, "--read-only-token-file", read}
}

// httpRequest is one request to an API.
type httpRequest struct {
	method, path string
	header       http.Header
	host         string
	body         string
}

// answer is the answer to one.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (s *served) do(t *testing.T, r httpRequest) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Host = r.host
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

// call makes a request with the token that may change things.
func (s *served) call(t *testing.T, method, path, body string) answer {
	t.Helper()
	return s.do(t, httpRequest{method: method, path: path, body: body, header: header("Authorization", "Bearer "+fullToken)})
}

// header makes a header of names and values, of a request with JSON.
func header(pairs ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	for n := 0; n < len(pairs); n += 2 {
		h.Set(pairs[n], pairs[n+1])
	}
	return h
}

// problemText is a problem's sentence.
func (a answer) problemText() string {
	var p struct{ Detail string }
	if json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Detail
}

// want checks a status, and texts in the body.
func (a answer) want(t *testing.T, status int, texts ...string) answer {
	t.Helper()
	if a.status != status {
		t.Errorf("status %d, want %d: %s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(string(a.body), text) {
			t.Errorf("%s, want %q in it", a.body, text)
		}
	}
	return a
}

const someInstance = "knd01m7y19apkenaskp9fvc72c4st"

// twoShards starts two shards that have something of everything.
func (c *fixture) twoShards() (one, two *shard) {
	one, two = c.shard("one"), c.shard("two")
	one.populate()
	two.populate()
	return one, two
}

// populate gives a shard something of everything, and no faults.
func (s *shard) populate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = nil
	full := web(2, 2)
	full.Etag = "7-53b5a2b9e1f0"
	full.Conditions[0].LastTransitionTime = timestamppb.Now()
	full.Instances = []*nstancev1.GroupInstance{{Id: someInstance, ProviderId: "i-1"}}
	full.Capacity = &nstancev1.MachineCapacity{CpuMillis: 2000, MemoryBytes: 1 << 33, Arch: "arm64"}
	full.OnDemand = &nstancev1.OnDemand{Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"team": "a"}, Max: 3}
	s.groups = map[string]*nstancev1.GroupStatus{"web": full, "jobs": {Key: "jobs", Tenant: "default", Template: "knd", Size: 1}}
	override := &nstancev1.SizeOverride{Tenant: "default", Group: "web", StaticSize: 5, Size: 3}
	s.config = &nstancev1.GetConfigStatusResponse{
		Etag: "e1", LastModified: timestamppb.Now(), Size: 2022, RunningApplied: true, RestartRequired: []string{"listen"},
		Violations:         []*nstancev1.Violation{{Field: "groups.default.web.size", Description: "too large"}},
		AwaitsConfirmation: []*nstancev1.GroupRemoval{{Tenant: "default", Group: "web", Instances: 2, InstanceIds: []string{someInstance}}},
		SizeOverrides:      []*nstancev1.SizeOverride{override},
	}
	s.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{
			Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, Etag: "e2", RestartRequired: []string{"listen"},
			SizeOverrides: []*nstancev1.SizeOverride{override}, Preview: somePreview(),
		}, nil
	}
	s.instances = []*nstancev1.InstanceStatus{{
		Id: someInstance, Tenant: "default", Group: "jobs", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING, Ips: []string{"10.0.0.1"},
		CreatedAt: timestamppb.Now(), Connected: true, Drain: &nstancev1.DrainStatus{Reason: "spot"},
	}}
}

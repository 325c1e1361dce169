package main_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const instanceID = "knd01h455vb4pex5vsknk084sn02q"

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// build makes the program as it is shipped: static and stripped.
func build(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nstance-agent")
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", path, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// shard is a server on loopback that admits one agent and keeps its reports.
type shard struct {
	nstancev1.UnimplementedRegistrationServiceServer
	nstancev1.UnimplementedAgentServiceServer
	ca      *pki.CA
	reports chan *nstancev1.ReportHealthRequest

	push chan *nstancev1.ReceiveFilesResponse // what to send; nil: files are not served
	ask  []*nstancev1.KeyRequest
	keys chan map[string]string // that were handed in
}

func (s *shard) Leading() (string, bool) { return "", true }

func (s *shard) RegisterAgent(_ context.Context, r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	public, err := pki.ParsePublicKey([]byte(r.GetPublicKey()))
	if err != nil {
		return nil, err
	}
	cert, err := s.ca.IssueAgent(pki.ClientRequest{Tenant: "default", ID: instanceID, PublicKey: public, Now: time.Now(), TTL: time.Hour},
		rand.Reader)
	if err != nil {
		return nil, err
	}
	return &nstancev1.RegisterAgentResponse{Identity: &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)), CaChain: string(pki.EncodeCertificate(s.ca.Certificate())),
	}}, nil
}

func (s *shard) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&nstancev1.ReportHealthResponse{})
		}
		if err != nil {
			return err
		}
		s.reports <- r
	}
}

// patience is for a machine that is busy: only what never comes takes longer.
const patience = 2 * time.Minute

func (s *shard) next(t *testing.T) *nstancev1.ReportHealthRequest {
	t.Helper()
	select {
	case r := <-s.reports:
		return r
	case <-time.After(patience):
		t.Fatal("no report came")
		return nil
	}
}

func startShard(t *testing.T) (s *shard, registration, agents string) {
	t.Helper()
	ca := must(pki.NewCA(pki.CAConfig{Cluster: "example", Key: must(pki.GenerateKey(rand.Reader))(t), Now: time.Now(),
		Random: rand.Reader}))(t)
	s = &shard{ca: ca, reports: make(chan *nstancev1.ReportHealthRequest, 100)}
	key := must(pki.GenerateKey(rand.Reader))(t)
	cert := must(ca.IssueServer(pki.ServerRequest{
		Shard: "dev-1", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader))(t)
	endpoint := pki.Endpoint{Cluster: "example", Source: pki.NewSource(pki.NewBundle(ca.Certificate()), must(pki.NewKeypair(cert, key))(t)),
		Now: time.Now}
	config := rpc.ServerConfig{TLS: endpoint.RegistrationServer(), Cluster: "example", Access: rpc.Access(), Gate: s, Now: time.Now,
		Logger: slog.New(slog.DiscardHandler)}
	config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterRegistrationServiceServer(r, s) }
	registration = serve(t, config)
	config.TLS = endpoint.Server()
	config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, s) }
	return s, registration, serve(t, config)
}

func serve(t *testing.T, c rpc.ServerConfig) string {
	t.Helper()
	listener := must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{}))(t)
	server := must(rpc.NewServer(c))(t)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().(*net.TCPAddr).String()
}

// running is an agent that runs, and the shard that it reports to.
type running struct {
	*shard
	*exec.Cmd
	log    *diary
	claims string // of its nonce
}

// diary is what a process says. It is safe for concurrent use.
type diary struct {
	mu   sync.Mutex
	text strings.Builder
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

func start(t *testing.T, path string) running {
	t.Helper()
	s, registration, agents := startShard(t)
	dir := t.TempDir()
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"cluster_id":"example","shard":"dev-1"}`))
	for name, content := range map[string]string{"ca.crt": string(pki.EncodeCertificate(s.ca.Certificate())), "nonce.jwt": "e30." + claims +
		".c2ln\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := running{shard: s, Cmd: exec.Command(path), log: &diary{}, claims: claims}
	a.Env = []string{
		"NSTANCE_SERVER_REGISTRATION_ADDR=" + registration, "NSTANCE_SERVER_AGENT_ADDR=" + agents, "NSTANCE_INSTANCE_ID=" + instanceID,
		"NSTANCE_IDENTITY_DIR=" + dir, "NSTANCE_REPORT_INTERVAL=100ms",
	}
	a.Stderr = a.log
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Process.Kill() })
	return a
}

// end asks the agent to stop, which it tells its server.
func (a running) end(t *testing.T) {
	t.Helper()
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !a.next(t).GetShuttingDown() {
	}
	if err := a.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, a.log)
	}
}

func TestProgram(t *testing.T) {
	path := build(t, "1.2.3")
	a := start(t, path)
	for range 20 {
		if r := a.next(t); r.GetResources().GetMemoryTotalBytes() == 0 || r.GetVersion() != "1.2.3" {
			t.Errorf("report %v", r)
		}
	}
	t.Logf("resident after 20 reports: %s (static binary on %s/%s)", resident(a.Process.Pid), runtime.GOOS, runtime.GOARCH)

	look := exec.Command(path, "status", "--output", "json")
	look.Env = a.Env
	var status struct {
		State   string `json:"state"`
		PID     int    `json:"pid"`
		Running bool   `json:"running"`
	}
	if err := json.Unmarshal(must(look.Output())(t), &status); err != nil || status.State != "connected" || !status.Running ||
		status.PID != a.Process.Pid {
		t.Errorf("status %+v, %v", status, err)
	}

	a.end(t)
	look = exec.Command(path, "status")
	look.Env = a.Env
	if text := string(must(look.Output())(t)); !strings.Contains(text, "not running") || !strings.Contains(text, "stopped") {
		t.Errorf("status of a stopped agent:\n%s", text)
	}
	if log := a.log.String(); strings.Contains(log, a.claims) || strings.Contains(log, "PRIVATE") {
		t.Errorf("the log holds a secret:\n%s", log)
	}
}

// On SIGHUP the agent becomes the program that lies in its place, and its server never
// hears that it went. One that can't be run changes nothing.
func TestANewVersionInPlace(t *testing.T) {
	path, newer := build(t, "1.2.3"), build(t, "1.2.4")
	a := start(t, path)
	a.version(t, "1.2.3")
	a.hangUp(t, path, newer)
	a.version(t, "1.2.4")

	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	a.hangUp(t, path, broken)
	for end := time.Now().Add(patience); !strings.Contains(a.log.String(), "reload failed"); {
		if a.version(t, "1.2.4"); time.Now().After(end) {
			t.Fatalf("the log does not tell of the program that could not be run:\n%s", a.log)
		}
	}
	for range 10 {
		a.version(t, "1.2.4")
	}
	a.end(t)
}

// hangUp puts a program into the place of the agent's and sends it SIGHUP.
func (a running) hangUp(t *testing.T, path, program string) {
	t.Helper()
	if err := os.Rename(program, path); err != nil {
		t.Fatal(err)
	}
	if err := a.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// version waits until the agent, without a word of going, reports that it is this one.
func (a running) version(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		r := a.next(t)
		if r.GetShuttingDown() {
			t.Fatalf("it told its server that it goes: %v", r)
		}
		if r.GetVersion() == want {
			return
		}
	}
	t.Fatalf("it never was version %s\n%s", want, a.log)
}

// resident is a process's VmRSS; empty where there is no /proc.
func resident(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if rss, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rss)
		}
	}
	return ""
}

func TestUsage(t *testing.T) {
	path := build(t, "1.2.3")
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--version"}, 0, []string{"nstance-agent 1.2.3"}},
		{[]string{"--help"}, 0, []string{"usage"}},
		{[]string{"status", "--help"}, 0, []string{"text or json"}},
		{[]string{"--nonsense"}, 2, []string{"nonsense", "usage"}},
		{[]string{"nonsense"}, 2, []string{`unknown command "nonsense"`, "usage"}},
		{[]string{"--log-format", "xml"}, 2, []string{`--log-format`, "want text or json"}},
		{nil, 2, []string{"NSTANCE_INSTANCE_ID: ", "NSTANCE_SERVER_AGENT_ADDR: ", "NSTANCE_SERVER_REGISTRATION_ADDR: "}},
		{[]string{"status", "--output", "yaml"}, 2, []string{`"yaml"`, "want --output text or json"}},
		{[]string{"status"}, 1, []string{"no agent has run", "/nowhere/identity", "NSTANCE_IDENTITY_DIR"}},
	} {
		command := exec.Command(path, c.args...)
		command.Env = []string{"NSTANCE_IDENTITY_DIR=/nowhere/identity"}
		out, _ := command.CombinedOutput()
		if code := command.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%v exits with %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%v prints %q, want %q in it", c.args, out, want)
			}
		}
	}
}

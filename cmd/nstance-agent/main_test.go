package main_test

import (
	"bytes"
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
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nstance-agent")
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3", "-o", path, ".")
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

func (s *shard) next(t *testing.T) *nstancev1.ReportHealthRequest {
	t.Helper()
	select {
	case r := <-s.reports:
		return r
	case <-time.After(20 * time.Second):
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

func TestProgram(t *testing.T) {
	path := build(t)
	s, registration, agents := startShard(t)
	dir := t.TempDir()
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"cluster_id":"example","shard":"dev-1"}`))
	for name, content := range map[string]string{"ca.crt": string(pki.EncodeCertificate(s.ca.Certificate())), "nonce.jwt": "e30." + claims +
		".c2ln\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environment := []string{
		"NSTANCE_SERVER_REGISTRATION_ADDR=" + registration, "NSTANCE_SERVER_AGENT_ADDR=" + agents, "NSTANCE_INSTANCE_ID=" + instanceID,
		"NSTANCE_IDENTITY_DIR=" + dir, "NSTANCE_REPORT_INTERVAL=100ms",
	}
	command := exec.Command(path)
	command.Env = environment
	var log bytes.Buffer
	command.Stderr = &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if r := s.next(t); r.GetResources().GetMemoryTotalBytes() == 0 || r.GetVersion() != "1.2.3" {
			t.Errorf("report %v", r)
		}
	}
	t.Logf("resident after 20 reports: %s (static binary on %s/%s)", resident(command.Process.Pid), runtime.GOOS, runtime.GOARCH)

	look := exec.Command(path, "status", "--output", "json")
	look.Env = environment
	var status struct {
		State   string `json:"state"`
		PID     int    `json:"pid"`
		Running bool   `json:"running"`
	}
	if err := json.Unmarshal(must(look.Output())(t), &status); err != nil || status.State != "connected" || !status.Running ||
		status.PID != command.Process.Pid {
		t.Errorf("status %+v, %v", status, err)
	}

	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !s.next(t).GetShuttingDown() {
	}
	if err := command.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
	look = exec.Command(path, "status")
	look.Env = environment
	if text := string(must(look.Output())(t)); !strings.Contains(text, "not running") || !strings.Contains(text, "stopped") {
		t.Errorf("status of a stopped agent:\n%s", text)
	}
	if strings.Contains(log.String(), claims) || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("the log holds a secret:\n%s", log.String())
	}
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
	path := build(t)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--version"}, 0, []string{"nstance-agent 1.2.3"}},
		{[]string{"--nonsense"}, 2, []string{"nonsense", "usage"}},
		{[]string{"nonsense"}, 2, []string{`unknown command "nonsense"`, "usage"}},
		{nil, 2, []string{"NSTANCE_INSTANCE_ID: ", "NSTANCE_SERVER_AGENT_ADDR: ", "NSTANCE_SERVER_REGISTRATION_ADDR: "}},
		{[]string{"status", "--output", "yaml"}, 2, []string{`"yaml"`, "--output text or --output json"}},
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

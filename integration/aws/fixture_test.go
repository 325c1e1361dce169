//go:build integration

// Package aws tests a shard on AWS with the real binaries: servers and agents are processes, and
// AWS is a stand-in on this machine with the real protocols. Servers have no credentials but their
// machine's role, and one address follows the leader.
package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
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

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	dev "github.com/nstance/nstance/pkg/dev/aws"
	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/object"
	objects "github.com/nstance/nstance/pkg/object/s3"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const (
	shard         = "s1"
	cluster       = "story"
	bucket        = "bucket"
	encryptionKey = "0123456789abcdef0123456789abcdef"
	keyName       = "nstance/story/key"
	targetGroup   = dev.TargetGroup
)

// leaderAddress is the address that all clients dial.
var leaderAddress = netip.MustParseAddr("127.77.0.100")

// fixture is a shard on AWS.
type fixture struct {
	t       *testing.T
	dir     string
	bin     string
	cloud   *awstest.Cloud
	stand   *dev.Server
	aws, s3 string // the stand-ins' addresses
	servers map[string]*server
}

// server is a process of nstance-server, on a machine of its own.
type server struct {
	machine string
	addr    netip.Addr
	log     string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// newFixture creates the cloud, the bucket, and two servers' machines, and starts the first server.
// leaderNetwork is that of the config; %s in it is replaced by the interface's id.
func newFixture(t *testing.T, interfaceID string) *fixture {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux has all of 127.0.0.0/8 as its own addresses")
	}
	root, err := filepath.Abs("../..")
	must(t, err)
	f := &fixture{t: t, dir: t.TempDir(), bin: filepath.Join(root, "bin"), servers: map[string]*server{}}
	f.serveAWS()
	f.serveS3()
	// Tagged as by the Terraform module: a server's machine is not managed by the shard.
	servers := map[string]string{"nstance:cluster-id": cluster, "nstance:shard": shard, "nstance:role": "server"}
	if interfaceID == "" {
		interfaceID, err = f.cloud.AddInterface(dev.SubnetA, leaderAddress, netip.Addr{}, mine())
		must(t, err)
	}
	f.put("config/"+shard+".jsonc", f.config(interfaceID))
	f.route()
	for _, name := range []string{"a", "b"} {
		s := &server{machine: f.cloud.AddMachine(dev.SubnetA, servers, false)}
		for _, i := range f.cloud.Interfaces() {
			if i.Instance == s.machine {
				s.addr = i.Addresses[0]
				must(t, f.cloud.Tag(i.ID, mine())) // a leader's address may be reassigned from it
			}
		}
		f.servers[name] = s
	}
	t.Cleanup(func() {
		if t.Failed() {
			f.tell()
		}
	})
	return f
}

// mine are the tags of resources that the shard may change.
func mine() map[string]string {
	return map[string]string{"nstance:managed": "true", "nstance:cluster-id": cluster, "nstance:shard": shard}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serveAWS serves the cloud, whose machines run their userdata, until the test ends.
func (f *fixture) serveAWS() {
	cfg := dev.CloudConfig()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.TargetGroups[0].Tags = mine()
	cfg.Tags = map[string]map[string]string{}
	for _, id := range []string{dev.SubnetA, dev.SubnetB, awstest.DefaultGroup(dev.VPC)} {
		cfg.Tags[id] = map[string]string{"nstance:cluster-id": cluster}
	}
	f.cloud = awstest.New(cfg)
	// Only what docs/aws-iam.json allows is allowed.
	key := f.cloud.Secrets.Put(keyName, encryptionKey)
	f.cloud.IAM.SetPolicies(awsclienttest.Rights(f.t, dev.Region, map[string]string{"cluster_id": cluster, "key_arn": key},
		iam.SectionServer, iam.SectionKey)...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(f.t, err)
	f.aws = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	f.stand = dev.New(dev.Config{Cloud: f.cloud, Run: filepath.Join(f.dir, "machines"), Logger: cfg.Logger})
	go func() { ended <- f.stand.Serve(ctx, l) }()
	f.t.Cleanup(func() {
		stop()
		must(f.t, <-ended)
	})
}

func (f *fixture) serveS3() {
	store, err := s3.New(s3.Config{Root: filepath.Join(f.dir, "s3"), Bucket: bucket, Keys: f.cloud.IAM.Secret})
	must(f.t, err)
	server := httptest.NewServer(store)
	f.s3 = server.URL
	f.t.Cleanup(func() {
		server.Close()
		must(f.t, store.Close())
	})
}

// put stores an object, as Terraform does.
func (f *fixture) put(key, text string) {
	f.t.Helper()
	store, err := objects.New(objects.Config{
		Bucket: bucket, Endpoint: f.s3, PathStyle: true, AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret",
	})
	must(f.t, err)
	_, err = store.Put(f.t.Context(), key, []byte(text), object.Precondition{})
	must(f.t, err)
}

// start starts a server's process and waits until it is ready.
func (f *fixture) start(name string) {
	f.t.Helper()
	s := f.servers[name]
	s.log = filepath.Join(f.dir, "server-"+name+".log")
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(f.t, err)
	defer log.Close()
	at := func(port int) string { return netip.AddrPortFrom(s.addr, uint16(port)).String() }
	s.cmd = exec.Command(filepath.Join(f.bin, "nstance-server"), "--shard", shard, "--id", name,
		"--storage-bucket", bucket, "--cache-dir", filepath.Join(f.dir, "cache-"+name), "--advertise-host", s.addr.String(),
		"--health-addr", at(8990), "--election-addr", at(8991), "--registration-addr", at(8992),
		"--operator-addr", at(8993), "--agent-addr", at(8994))
	metadata, err := f.stand.MetadataURL(f.t.Context(), s.machine)
	must(f.t, err)
	s.cmd.Env = append(f.env(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+metadata)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	must(f.t, s.cmd.Start())
	ended, cmd := make(chan struct{}), s.cmd
	s.ended = ended
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	f.t.Cleanup(func() { f.kill(name, syscall.SIGKILL) })
	f.within(patience, "server "+name+" is ready", func() error {
		answer, err := http.Get("http://" + at(8990) + "/health")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %w", answer.Status, text, err)
		}
		return nil
	})
}

// env is the environment of a machine, without credentials.
func (f *fixture) env() []string {
	env := []string{
		"AWS_REGION=" + dev.Region, "AWS_ENDPOINT_URL=" + f.aws, "AWS_ENDPOINT_URL_S3=" + f.s3, "AWS_S3_USE_PATH_STYLE=true",
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "NSTANCE_") {
			env = append(env, v)
		}
	}
	return env
}

// kill kills a server's process; its machine stays.
func (f *fixture) kill(name string, how syscall.Signal) {
	s := f.servers[name]
	_ = s.cmd.Process.Signal(how) // it may have ended already
	<-s.ended
}

// holder returns the name of the server whose machine has the leader's address; empty: none.
func (f *fixture) holder() string {
	for _, i := range f.cloud.Interfaces() {
		for _, addr := range i.Addresses {
			if addr != leaderAddress || i.Status != "in-use" {
				continue
			}
			for name, s := range f.servers {
				if s.machine == i.Instance {
					return name
				}
			}
		}
	}
	return ""
}

// route is the network: connections to the leader's address reach the machine that has it, and are
// closed when the address moves.
func (f *fixture) route() {
	var lasting sync.WaitGroup
	over := make(chan struct{})
	var listeners []net.Listener
	for _, port := range []uint16{8992, 8993, 8994} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(leaderAddress, port).String())
		must(f.t, err)
		lasting.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				lasting.Go(func() { f.carry(conn, port, over) })
			}
		})
		listeners = append(listeners, l)
	}
	f.t.Cleanup(func() {
		close(over)
		for _, l := range listeners {
			l.Close()
		}
		lasting.Wait()
	})
}

func (f *fixture) carry(from net.Conn, port uint16, over <-chan struct{}) {
	defer from.Close()
	name := f.holder()
	if name == "" {
		return
	}
	to, err := net.Dial("tcp", netip.AddrPortFrom(f.servers[name].addr, port).String())
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // until either ends
			ended <- struct{}{}
		}()
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-over:
			return
		case <-tick.C:
			if f.holder() != name {
				return
			}
		}
	}
}

// patience bounds every wait, generously, so that other load on the machine fails no test.
const patience = 3 * time.Minute

// within polls until ask returns no error; other processes send no events to wait for.
func (f *fixture) within(limit time.Duration, what string, ask func() error) time.Duration {
	f.t.Helper()
	begin, last := time.Now(), error(nil)
	for time.Since(begin) < limit {
		if last = ask(); last == nil {
			return time.Since(begin)
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatalf("not within %s: %s: %v", limit, what, last)
	return 0
}

// try runs nstance-admin with the account's keys, as from any machine.
func (f *fixture) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(f.bin, "nstance-admin"), args...)
	cmd.Env = append(f.env(), "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret",
		"NSTANCE_ADMIN_KEY_PROVIDER=aws-secrets-manager", "NSTANCE_ADMIN_KEY_SOURCE="+keyName, "NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_SERVERS="+shard+"="+netip.AddrPortFrom(leaderAddress, 8993).String(),
		"NSTANCE_ADMIN_IDENTITY_DIR="+filepath.Join(f.dir, "admin"), "NSTANCE_ADMIN_TIMEOUT=2m")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nstance-admin %v: %w: %s", args, err, errOut.String())
	}
	return out.String(), nil
}

func (f *fixture) admin(args ...string) string {
	f.t.Helper()
	out, err := f.try(args...)
	must(f.t, err)
	return out
}

// phase is a phase as people write it, from the name of the enum.
type phase string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *phase) UnmarshalText(name []byte) error {
	*p = phase(strings.ToLower(strings.TrimPrefix(string(name), "INSTANCE_PHASE_")))
	return nil
}

// instance is an instance in nstance-admin's output.
type instance struct {
	ID        string `json:"id"`
	Group     string `json:"group"`
	Phase     phase  `json:"phase"`
	Reason    string `json:"reason"`
	Connected bool   `json:"connected"`
	Provider  string `json:"provider_id"`
}

func (f *fixture) instances(more ...string) ([]instance, error) {
	out, err := f.try(append([]string{"instance", "list", "-o", "json", "--timeout", "5s"}, more...)...)
	if err != nil {
		return nil, err
	}
	var all []instance
	return all, json.Unmarshal([]byte(out), &all)
}

// connected waits until a group has exactly this many instances, all of them running and connected.
func (f *fixture) connected(group string, size int, limit time.Duration) (found []instance) {
	f.t.Helper()
	took := f.within(limit, fmt.Sprintf("%s has %d instances that are connected", group, size), func() error {
		all, err := f.instances()
		if err != nil {
			return err
		}
		found = nil
		for _, i := range all {
			if i.Group != group {
				continue
			}
			if i.Phase != "running" || !i.Connected {
				return fmt.Errorf("%+v", i)
			}
			found = append(found, i)
		}
		if len(found) != size {
			return fmt.Errorf("there are %d: %+v", len(found), found)
		}
		return nil
	})
	f.t.Logf("%d instances of %s are connected after %s", size, group, took.Round(100*time.Millisecond))
	return found
}

// tell prints the processes' output after a failure.
func (f *fixture) tell() {
	logs, err := filepath.Glob(filepath.Join(f.dir, "server-*.log"))
	must(f.t, err)
	machines, err := filepath.Glob(filepath.Join(f.dir, "machines", "*", "log"))
	must(f.t, err)
	for _, path := range append(logs, machines...) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			f.t.Error(err)
		}
		f.t.Logf("--- %s\n%s", path, text[max(0, len(text)-6000):])
	}
}

//go:build integration

// Package aws tells what a shard does on AWS, with the real binaries: servers and agents
// are processes, and AWS is a stand-in that speaks the real protocols, on this machine.
// Servers have no key but their machine's role, and one address follows the leader.
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
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

const (
	shard         = "s1"
	cluster       = "story"
	bucket        = "bucket"
	encryptionKey = "0123456789abcdef0123456789abcdef"
	keyName       = "nstance/story/key"
	targetGroup   = dev.TargetGroup
)

// leaderAddress is the one that all dial.
var leaderAddress = netip.MustParseAddr("127.77.0.100")

// world is a shard on AWS.
type world struct {
	t       *testing.T
	dir     string
	bin     string
	cloud   *awsfake.Cloud
	stand   *dev.Stand
	aws, s3 string // where they are
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

// begin makes the cloud, the bucket, and two servers' machines, and starts the first.
// leaderNetwork is the config's, and %s in it stands for the interface that was made.
func begin(t *testing.T, interfaceID string) *world {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux has all of 127.0.0.0/8 as its own addresses")
	}
	root, err := filepath.Abs("../..")
	must(t, err)
	w := &world{t: t, dir: t.TempDir(), bin: filepath.Join(root, "bin"), servers: map[string]*server{}}
	w.serveAWS()
	w.serveS3()
	// As the Terraform module tags them: a server's machine is none of those that the shard manages.
	servers := map[string]string{"nstance:cluster-id": cluster, "nstance:shard": shard, "nstance:role": "server"}
	if interfaceID == "" {
		interfaceID, err = w.cloud.PlantInterface(dev.SubnetA, leaderAddress, netip.Addr{}, mine())
		must(t, err)
	}
	w.put("config/"+shard+".jsonc", w.config(interfaceID))
	w.route()
	for _, name := range []string{"a", "b"} {
		s := &server{machine: w.cloud.Plant(dev.SubnetA, servers, false)}
		for _, i := range w.cloud.Interfaces() {
			if i.Instance == s.machine {
				s.addr = i.Addresses[0]
				must(t, w.cloud.Tag(i.ID, mine())) // a leader's address may be taken from it
			}
		}
		w.servers[name] = s
	}
	t.Cleanup(func() {
		if t.Failed() {
			w.tell()
		}
	})
	return w
}

// mine are the tags of what the shard may change.
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
func (w *world) serveAWS() {
	cfg := dev.World()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.TargetGroups[0].Tags = mine()
	w.cloud = awsfake.New(cfg)
	// Nothing is allowed but what the policies of docs/aws-iam.json say.
	key := w.cloud.Secrets.Put(keyName, encryptionKey)
	w.cloud.Rights.Set(awsclienttest.Rights(w.t, dev.Region, map[string]string{"cluster_id": cluster, "key_arn": key},
		iam.SectionServer, iam.SectionKey)...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.aws = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.stand = dev.New(dev.Config{Cloud: w.cloud, Run: filepath.Join(w.dir, "machines"), Logger: cfg.Logger})
	go func() { ended <- w.stand.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		stop()
		must(w.t, <-ended)
	})
}

func (w *world) serveS3() {
	store, err := s3.New(s3.Config{Root: filepath.Join(w.dir, "s3"), Bucket: bucket})
	must(w.t, err)
	server := httptest.NewServer(store)
	w.s3 = server.URL
	w.t.Cleanup(func() {
		server.Close()
		must(w.t, store.Close())
	})
}

// put puts an object, as Terraform does.
func (w *world) put(key, text string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPut, w.s3+"/"+bucket+"/"+key, strings.NewReader(text))
	must(w.t, err)
	answer, err := http.DefaultClient.Do(r)
	must(w.t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		w.t.Fatalf("put %s: %s", key, answer.Status)
	}
}

// start starts a server's process and waits until it is ready.
func (w *world) start(name string) {
	w.t.Helper()
	s := w.servers[name]
	s.log = filepath.Join(w.dir, "server-"+name+".log")
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(w.t, err)
	defer log.Close()
	at := func(port int) string { return netip.AddrPortFrom(s.addr, uint16(port)).String() }
	s.cmd = exec.Command(filepath.Join(w.bin, "nstance-server"), "--shard", shard, "--id", name,
		"--storage-bucket", bucket, "--cache-dir", filepath.Join(w.dir, "cache-"+name), "--advertise-host", s.addr.String(),
		"--health-addr", at(8990), "--election-addr", at(8991), "--registration-addr", at(8992),
		"--operator-addr", at(8993), "--agent-addr", at(8994))
	metadata, err := w.stand.MetadataURL(w.t.Context(), s.machine)
	must(w.t, err)
	s.cmd.Env = append(w.env(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+metadata)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	must(w.t, s.cmd.Start())
	ended, cmd := make(chan struct{}), s.cmd
	s.ended = ended
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	w.t.Cleanup(func() { w.kill(name, syscall.SIGKILL) })
	w.within(time.Minute, "server "+name+" is ready", func() error {
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

// env is the environment of a machine, without any key.
func (w *world) env() []string {
	env := []string{
		"AWS_REGION=" + dev.Region, "AWS_ENDPOINT_URL=" + w.aws, "AWS_ENDPOINT_URL_S3=" + w.s3, "AWS_S3_USE_PATH_STYLE=true",
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "NSTANCE_") {
			env = append(env, v)
		}
	}
	return env
}

// kill ends a server's process; its machine stays.
func (w *world) kill(name string, how syscall.Signal) {
	s := w.servers[name]
	_ = s.cmd.Process.Signal(how) // it may have ended
	<-s.ended
}

// holder is the name of the server whose machine has the leader's address, empty for none.
func (w *world) holder() string {
	for _, i := range w.cloud.Interfaces() {
		for _, addr := range i.Addresses {
			if addr != leaderAddress || i.Status != "in-use" {
				continue
			}
			for name, s := range w.servers {
				if s.machine == i.Instance {
					return name
				}
			}
		}
	}
	return ""
}

// route is the network: what is sent to the leader's address reaches the machine that
// has it, and a connection ends when the address moves.
func (w *world) route() {
	var lasting sync.WaitGroup
	over := make(chan struct{})
	var listeners []net.Listener
	for _, port := range []uint16{8992, 8993, 8994} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(leaderAddress, port).String())
		must(w.t, err)
		lasting.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				lasting.Go(func() { w.carry(conn, port, over) })
			}
		})
		listeners = append(listeners, l)
	}
	w.t.Cleanup(func() {
		close(over)
		for _, l := range listeners {
			l.Close()
		}
		lasting.Wait()
	})
}

func (w *world) carry(from net.Conn, port uint16, over <-chan struct{}) {
	defer from.Close()
	name := w.holder()
	if name == "" {
		return
	}
	to, err := net.Dial("tcp", netip.AddrPortFrom(w.servers[name].addr, port).String())
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
			if w.holder() != name {
				return
			}
		}
	}
}

// within polls until ask has no error; there is no event to wait for in other processes.
func (w *world) within(limit time.Duration, what string, ask func() error) time.Duration {
	w.t.Helper()
	begin, last := time.Now(), error(nil)
	for time.Since(begin) < limit {
		if last = ask(); last == nil {
			return time.Since(begin)
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("not within %s: %s: %v", limit, what, last)
	return 0
}

// try runs nstance-admin as somebody with keys of the account does, from anywhere.
func (w *world) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "nstance-admin"), args...)
	cmd.Env = append(w.env(), "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret",
		"NSTANCE_ADMIN_KEY_PROVIDER=aws-secrets-manager", "NSTANCE_ADMIN_KEY_SOURCE="+keyName, "NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_SERVERS="+shard+"="+netip.AddrPortFrom(leaderAddress, 8993).String(),
		"NSTANCE_ADMIN_IDENTITY_DIR="+filepath.Join(w.dir, "admin"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nstance-admin %v: %w: %s", args, err, errOut.String())
	}
	return out.String(), nil
}

func (w *world) admin(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	must(w.t, err)
	return out
}

// instance is one as the shard tells it.
type instance struct {
	ID        string `json:"id"`
	Group     string `json:"group"`
	Phase     string `json:"phase"`
	Reason    string `json:"reason"`
	Connected bool   `json:"connected"`
	Provider  string `json:"provider_id"`
}

func (w *world) instances(more ...string) ([]instance, error) {
	out, err := w.try(append([]string{"instance", "list", "-o", "json", "--timeout", "5s"}, more...)...)
	if err != nil {
		return nil, err
	}
	var all []instance
	return all, json.Unmarshal([]byte(out), &all)
}

// connected waits until a group has so many instances, all of which run and are
// connected, and nothing else.
func (w *world) connected(group string, size int, limit time.Duration) (found []instance) {
	w.t.Helper()
	took := w.within(limit, fmt.Sprintf("%s has %d instances that are connected", group, size), func() error {
		all, err := w.instances()
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
	w.t.Logf("%d instances of %s are connected after %s", size, group, took.Round(100*time.Millisecond))
	return found
}

// tell shows what was said, after a failure.
func (w *world) tell() {
	logs, err := filepath.Glob(filepath.Join(w.dir, "server-*.log"))
	must(w.t, err)
	machines, err := filepath.Glob(filepath.Join(w.dir, "machines", "*", "log"))
	must(w.t, err)
	for _, path := range append(logs, machines...) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Error(err)
		}
		w.t.Logf("--- %s\n%s", path, text[max(0, len(text)-6000):])
	}
}

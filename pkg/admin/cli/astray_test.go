package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// port starts another listener of a shard's server, which serves other services.
func (c *fixture) port(id string, tls func(pki.Endpoint) rpc.ServerConfig) {
	c.t.Helper()
	config := tls(c.endpoint(id))
	config.Cluster, config.Access, config.Gate = clusterID, rpc.Access(), &shard{leads: true}
	config.Now, config.Logger = time.Now, slog.New(slog.DiscardHandler)
	server, err := rpc.NewServer(config)
	if err != nil {
		c.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	c.t.Cleanup(server.Stop)
	c.addServer(id, l.Addr().String())
}

// TestAstray: an address that leads to something else than the shard's server ends a command at once,
// with one sentence that says so.
func TestAstray(t *testing.T) {
	for name, x := range map[string]struct {
		set  func(*fixture)
		want string
	}{
		"another CA": {func(c *fixture) {
			other := newFixture(t)
			other.shard("dev-1")
			c.env["NSTANCE_ADMIN_SERVERS"] = other.env["NSTANCE_ADMIN_SERVERS"]
		}, "no CA known here signed the certificate of 127.0.0.1:"},
		"another shard": {func(c *fixture) {
			s := c.shard("dev-2")
			c.env["NSTANCE_ADMIN_SERVERS"] = "dev-1=" + s.addr
		}, `leads to a server of shard "dev-2", want one of shard "dev-1": correct the address`},
		"a web server": {func(c *fixture) {
			web := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(web.Close)
			c.addServer("dev-1", web.Listener.Addr().String())
		}, "another program listens there, such as a web server"},
		"the registration port": {func(c *fixture) {
			c.port("dev-1", func(e pki.Endpoint) rpc.ServerConfig {
				return rpc.ServerConfig{TLS: e.RegistrationServer(), Services: func(r grpc.ServiceRegistrar) {
					nstancev1.RegisterRegistrationServiceServer(r, nstancev1.UnimplementedRegistrationServiceServer{})
				}}
			})
		}, "use its operator address (port 8993 by default; 8992 is for registration, 8994 for agents)"},
		"the agent port": {func(c *fixture) {
			c.port("dev-1", func(e pki.Endpoint) rpc.ServerConfig {
				return rpc.ServerConfig{TLS: e.Server(), Services: func(r grpc.ServiceRegistrar) {
					nstancev1.RegisterAgentServiceServer(r, nstancev1.UnimplementedAgentServiceServer{})
				}}
			})
		}, "use its operator address (port 8993 by default; 8992 is for registration, 8994 for agents)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFixture(t).register()
			x.set(c)
			for _, args := range [][]string{{"group", "list"}, {"group", "scale", "web", "2"}, {"watch"}, {"instance", "drain", "--", "true"}} {
				r := c.run(args...).want(t, cli.ExitFailed, "nstance-admin: shard dev-1: ", x.want)
				if strings.Contains(r.errOut, "desc =") || strings.Contains(r.errOut, "is up") || strings.Count(r.errOut, "\n") > 2 ||
					strings.Contains(r.errOut, "waiting:") {
					t.Errorf("%v: %s", args, r.errOut)
				}
			}
		})
	}
}

// TestTenantOfNoShard: the server's sentence is shown as it is.
func TestTenantOfNoShard(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").fail(rpc.Precondition.Errorf("tenant %q is not declared in the config of this shard: declare it", "blue"))
	c.run("group", "list").want(t, cli.ExitFailed,
		`nstance-admin: shard dev-1: tenant "blue" is not declared in the config of this shard: declare it`)
}

// TestMistyped: what is missing or mistyped is named, with the nearest names.
func TestMistyped(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"group", "status"}, cli.ExitUsage, "missing argument: GROUP: want nstance-admin group status GROUP"},
		{[]string{"group", "scale"}, cli.ExitUsage, "missing argument: GROUP SIZE: want"},
		{[]string{"group", "scale", "web"}, cli.ExitUsage, "missing argument: SIZE: want"},
		{[]string{"group", "scale", "web", "1", "2"}, cli.ExitUsage, `unexpected argument: "2": want`},
		{[]string{"group", "list", "web"}, cli.ExitUsage, `unexpected argument: "web": want nstance-admin group list`},
		{[]string{"cluster", "config", "put", "dev-1"}, cli.ExitUsage, "missing argument: FILE"},
		{[]string{"group", "scale", "web", "3", "--shrad", "dev-1"}, cli.ExitUsage, "unknown flag --shrad: did you mean --shard?"},
		{[]string{"group", "scale", "web", "3", "--xyzzy"}, cli.ExitUsage,
			"unknown flag --xyzzy: `nstance-admin group scale --help` lists the flags"},
		{[]string{"gruop", "list", "--sort", "size"}, cli.ExitUsage, `unknown command "gruop" for "nstance-admin", did you mean group?`},
		{[]string{"group", "update", "jobs", "--instance-type", "x"}, cli.ExitUsage,
			"unknown command \"update\" for \"nstance-admin group\": `nstance-admin group --help` lists the commands"},
		{[]string{"group", "scale", "web", "3", "-x"}, cli.ExitUsage, "unknown flag -x: "},
		{[]string{"group", "list", "--shard"}, cli.ExitUsage, "--shard: missing value"},
		{[]string{"group", "list", "--sevrers", "x"}, cli.ExitUsage, "did you mean --servers?"},
		{[]string{"group", "status", "wbe"}, cli.ExitFailed, `group "wbe": no such group: did you mean web?`},
		{[]string{"group", "status", "database"}, cli.ExitFailed, `group "database": no such group (have: web)`},
		{[]string{"group", "explain", "wbe"}, cli.ExitFailed, "did you mean web?"},
		{[]string{"group", "scale", "wbe", "3"}, cli.ExitFailed, "no such group: did you mean web?"},
		{[]string{"group", "delete", "wbe", "--yes"}, cli.ExitFailed, "no such group: did you mean web?"},
		{[]string{"group", "reset", "wbe", "--yes"}, cli.ExitFailed, "no such group: did you mean web?"},
		{[]string{"instance", "list", "--group", "wbe"}, cli.ExitFailed, "no such group: did you mean web?"},
		{[]string{"group", "list", "--identity-dir", ""}, cli.ExitUsage, "--identity-dir: the path is empty"},
		{[]string{"config", "validate", ""}, cli.ExitUsage, "FILE: the path is empty"},
		{[]string{"cluster", "config", "put", "dev-1", ""}, cli.ExitUsage, "FILE: the path is empty"},
		{[]string{"cluster", "secret", "put", "x", ""}, cli.ExitUsage, "FILE: the path is empty"},
		{[]string{"cluster", "ca", "add", ""}, cli.ExitUsage, "FILE: the path is empty"},
		{[]string{"cluster", "nonce", "-o", ""}, cli.ExitUsage, "--output: the path is empty"},
		{[]string{"cluster", "register-operator", "--output-dir", ""}, cli.ExitUsage, "--output-dir: the path is empty"},
		{[]string{"group", "list", "--servers", "dev-1=x:1;"}, cli.ExitUsage, "empty address"},
		{[]string{"group", "list", "--servers", "dev-1=x:1,"}, cli.ExitUsage, "remove the comma"},
		{[]string{"storage", "check", "--storage-bucket", c.bucket + "/none"}, cli.ExitFailed, "/none does not exist"},
		{[]string{"cluster", "ca", "list", "--storage-bucket", c.bucket + "/none"}, cli.ExitFailed, "/none does not exist"},
	} {
		r := c.run(x.args...).want(t, x.code, "nstance-admin: ", x.want)
		if strings.Contains(r.errOut, " : ") || strings.Contains(r.errOut, "in :") {
			t.Errorf("%v: an empty text: %s", x.args, r.errOut)
		}
	}
	// A group without instances is no mistake.
	c.run("instance", "list", "--group", "web").want(t, cli.ExitOK)
}

// TestNoSuchBucket: the outcome of a request to a bucket that does not exist is not unknown.
func TestNoSuchBucket(t *testing.T) {
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"))
	}))
	defer s3.Close()
	env := map[string]string{"AWS_ENDPOINT_URL": s3.URL, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	code, out, errOut := checkStorage(env, "--storage-bucket", "bucket")
	if code != cli.ExitFailed || !strings.Contains(errOut, "the bucket does not exist") || strings.Contains(out+errOut, "unknown") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// watched is an output that tells when it contains a text.
type watched struct {
	text string
	seen chan struct{}
	once sync.Once
	mu   sync.Mutex
	buf  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// TestEagerAndInterrupted: rows of the shards that answer are printed while another one is waited for;
// an interrupted command says so in one sentence.
func TestEagerAndInterrupted(t *testing.T) {
	c := newFixture(t).register()
	one := c.shard("dev-1").setGroups(web(1, 1))
	c.shard("dev-2").hang()
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"group", "list"}, "nstance-admin: interrupted\n"},
		{[]string{"group", "scale", "web", "3", "--all-shards"}, "nstance-admin: interrupted: a change that was under way may have been made"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		out := &watched{text: "dev-1  default  web", seen: make(chan struct{})}
		var errOut bytes.Buffer
		done := make(chan int)
		go func() {
			done <- cli.Run(ctx, cli.Env{
				Args: x.args, Getenv: func(name string) string { return c.env[name] }, Stdout: out, Stderr: &errOut,
				Now: time.Now, Random: rand.Reader,
			})
		}()
		if x.args[1] == "list" {
			<-out.seen
		} else {
			for len(one.changes()) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		interrupt()
		if code := <-done; code != cli.ExitFailed || !strings.Contains(errOut.String(), x.want) ||
			strings.Contains(errOut.String(), "context canceled") || strings.Contains(errOut.String(), "hint") {
			t.Errorf("%v: exit %d: %s", x.args, code, errOut.String())
		}
	}
}

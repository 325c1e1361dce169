package cli_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/object"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type diagnosis struct{ Check, Result, Detail string }

// leads stores a config and a leader record of a shard, with ports that are open, or closed.
func (c *fixture) leads(shard string, released, open bool) {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	if c.t.Cleanup(func() { l.Close() }); !open {
		l.Close()
	}
	body := fmt.Sprintf(`{"holder": "one", "epoch": 7, "rev": 1, "addrs": {"agent": %q, "operator": %q}, "released": %t}`,
		l.Addr(), l.Addr(), released)
	c.configured(shard)
	if _, err := c.store.Put(c.t.Context(), "leader/"+shard+".json", []byte(body), object.Precondition{}); err != nil {
		c.t.Fatal(err)
	}
}

// doctor runs the command and returns its rows by their checks.
func (c *fixture) doctor(code int, args ...string) map[string]diagnosis {
	c.t.Helper()
	rows := map[string]diagnosis{}
	for _, d := range decode[[]diagnosis](c.t, c.run(append([]string{"doctor", "-o", "json"}, args...)...).want(c.t, code).out) {
		check := d.Check
		if strings.HasPrefix(check, "CA ") {
			check = "CA"
		}
		rows[check] = d
	}
	return rows
}

// TestDoctor: a healthy cluster passes, and nothing is left in its storage.
func TestDoctor(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	running := nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	s.instances = []*nstancev1.InstanceStatus{{Id: newInstance, Phase: running, Connected: true}}
	c.leads("dev-1", false, true)
	rows := c.doctor(cli.ExitOK)
	for _, check := range []string{"storage", "clock", "secrets", "CA", "leader of dev-1", "leader of dev-1, agent",
		"leader of dev-1, operator", "identity", "shard dev-1", "agents of dev-1"} {
		if rows[check].Result != "ok" {
			t.Errorf("%s: %+v", check, rows[check])
		}
	}
	if !strings.Contains(rows["leader of dev-1"].Detail, "epoch 7") {
		t.Errorf("%+v", rows["leader of dev-1"])
	}
	if left, err := object.All(t.Context(), c.store, "probe/"); err != nil || len(left) > 0 {
		t.Errorf("left below probe/: %v, %v", left, err)
	}
	if out := c.run("doctor").want(t, cli.ExitOK).out; strings.Count(out, "\n") < 11 || !strings.HasPrefix(out, "CHECK ") {
		t.Errorf("table: %s", out)
	}
	// A standby that is down.
	c.env["NSTANCE_ADMIN_SERVERS"] += ";127.0.0.1:1"
	d := c.doctor(cli.ExitFailed)["shard dev-1, 127.0.0.1:1"]
	if d.Result != "fail" || !strings.Contains(d.Detail, "check that the server is up") {
		t.Errorf("a standby that is down: %+v", d)
	}
	c.env["NSTANCE_ADMIN_SERVERS"] = strings.TrimSuffix(c.env["NSTANCE_ADMIN_SERVERS"], ";127.0.0.1:1")
	// A silent agent is a warning.
	s.instances[0].Connected = false
	if d := c.doctor(cli.ExitOK)["agents of dev-1"]; d.Result != "warn" || !strings.Contains(d.Detail, newInstance) {
		t.Errorf("a silent agent: %+v", d)
	}
}

// TestDoctorFails: each failure is a row that names it, with exit code 1; the other checks are made.
func TestDoctorFails(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1")
	other := newFixture(t)
	other.shard("dev-2")
	c.env["NSTANCE_ADMIN_SERVERS"] += "," + other.env["NSTANCE_ADMIN_SERVERS"]
	c.leads("dev-1", false, false)
	c.leads("dev-2", true, true)
	c.env["NSTANCE_ENCRYPTION_KEY"] = "another32byteencryptionkey654321"
	rows := c.doctor(cli.ExitFailed)
	for check, want := range map[string]string{
		"secrets": "", "leader of dev-1, agent": "check that the server is up", "leader of dev-2": "no server follows: start one",
		"shard dev-2": "no CA known here signed",
	} {
		if d := rows[check]; d.Result != "fail" || !strings.Contains(d.Detail, want) {
			t.Errorf("%s: %+v, want %q", check, d, want)
		}
	}
	for _, check := range []string{"storage", "leader of dev-1", "identity", "shard dev-1"} {
		if rows[check].Result != "ok" {
			t.Errorf("%s: %+v", check, rows[check])
		}
	}
	c.run("doctor", "--storage-provider", "dir", "--storage-bucket", c.bucket+"/none").want(t, cli.ExitFailed, "checks failed")
	empty := map[string]string{}
	run(t, empty, "doctor").want(t, cli.ExitUsage, "nothing to check: pass --storage-bucket, --servers, or both")
	c.env["NSTANCE_ADMIN_IDENTITY_DIR"] = t.TempDir()
	if d := c.doctor(cli.ExitFailed)["identity"]; d.Result != "fail" || !strings.Contains(d.Detail, "register-operator") {
		t.Errorf("without an identity: %+v", d)
	}
}

// TestDoctorOfAShardWithoutALeader: that a shard does not answer is no fault of its ports.
func TestDoctorOfAShardWithoutALeader(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.leads = false
	rows := c.doctor(cli.ExitFailed, "--timeout", "1s", "--storage-bucket", "")
	if d := rows["shard dev-1"]; d.Result != "fail" || !strings.Contains(d.Detail, "no leader is known yet") {
		t.Errorf("the shard: %+v", d)
	}
	if d := rows["shard dev-1, "+s.addr]; d.Result != "ok" {
		t.Errorf("its port: %+v", d)
	}
}

// TestOutageOfStorage: while the servers can't write to object storage, a command says that, and nothing that
// leads astray.
func TestOutageOfStorage(t *testing.T) {
	const said = "no write to object storage has succeeded since 2026-11-29T03:12:00Z"
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.groups["web"] = &nstancev1.GroupStatus{Key: "web", Tenant: "default", Size: 2}
	s.outage = said
	if out := c.run("group", "list").want(t, cli.ExitOK).out; !strings.Contains(out, "web") {
		t.Errorf("the leader answers %s", out)
	}
	for _, leads := range []bool{true, false} {
		s.locked(func() { s.leads = leads })
		r := c.run("group", "scale", "web", "3", "--timeout", "1s")
		r.want(t, cli.ExitFailed, said, "nothing was changed", "hint: the log of the servers says why")
		if strings.Contains(r.errOut, "answered in time") || strings.Contains(r.errOut, "--servers") {
			t.Errorf("it says %s", r.errOut)
		}
	}
	c.run("group", "list", "--timeout", "1s").want(t, cli.ExitFailed, said)
	s.locked(func() {
		if n := s.groups["web"].GetSize(); n != 2 {
			t.Errorf("the size is %d", n)
		}
	})
}

// TestDoctorClock: a wrong clock, and what expires, is found.
func TestDoctorClock(t *testing.T) {
	c := newFixture(t).register()
	for ahead, want := range map[time.Duration]string{
		20 * time.Second: "clock warn", 2 * time.Hour: "clock fail", 30 * 365 * 24 * time.Hour: "the CA that signs expired",
	} {
		var out, errOut bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			Args: []string{"doctor", "--servers", ""}, Getenv: func(name string) string { return c.env[name] }, Stdout: &out, Stderr: &errOut,
			Now: func() time.Time { return time.Now().Add(ahead) }, Random: rand.Reader,
		})
		text := strings.Join(strings.Fields(out.String()), " ")
		if code != cli.ExitFailed || !strings.Contains(text, want) {
			t.Errorf("%s ahead: exit %d\n%s%s", ahead, code, out.String(), errOut.String())
		}
	}
}

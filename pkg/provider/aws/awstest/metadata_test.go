package awstest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// guest calls a machine's metadata service.
type guest struct {
	http.Handler
	token string
}

func (g *guest) ask(t *testing.T, method, path string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	if g.token != "" {
		r.Header.Set("X-aws-ec2-metadata-token", g.token)
	}
	out := httptest.NewRecorder()
	g.ServeHTTP(out, r)
	return out.Code, out.Body.String()
}

func (g *guest) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return g.ask(t, http.MethodGet, "/latest/"+path)
}

// enter gets a token that is valid for some seconds.
func (g *guest) enter(t *testing.T, seconds string) int {
	t.Helper()
	code, said := g.ask(t, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", seconds)
	if code == http.StatusOK {
		g.token = said
	}
	return code
}

func TestMetadata(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Attach = time.Second })
	m := f.machines(t, 1)[0]
	g := &guest{Handler: f.Metadata(m)}
	g.enter(t, "21600")
	own := f.primary(t, m)
	eni := f.plant(t, "10.0.0.12", "2001:db8::12")
	f.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": "2"})
	macs, second := "meta-data/network/interfaces/macs/", f.nic(t, eni).MAC
	if _, got := g.get(t, macs); got != own.MAC+"/" {
		t.Errorf("while it attaches there are %q", got)
	}
	f.pass(time.Second)
	for path, want := range map[string]string{
		"meta-data/instance-id": m, "meta-data/instance-type": "t3.small", "meta-data/placement/region": "us-east-1",
		"meta-data/placement/availability-zone": "us-east-1a", "meta-data/local-ipv4": "10.0.0.4", "meta-data/mac": own.MAC,
		"meta-data/instance-life-cycle": "on-demand", "meta-data/spot/instance-action": "404",
		"meta-data/events/recommendations/rebalance": "404", "meta-data/iam/security-credentials/": "404", "user-data": "404",
		macs: own.MAC + "/\n" + second + "/", macs + own.MAC + "/device-number": "0", macs + second + "/device-number": "2",
		macs + second + "/interface-id": eni, macs + second + "/mac": second, macs + second + "/subnet-id": subnet,
		macs + second + "/local-ipv4s": "10.0.0.12", macs + second + "/ipv6s": "2001:db8::12", macs + own.MAC + "/ipv6s": "404",
		macs + second + "/colour": "404", macs + "02:00:00:00:00:00/mac": "404",
	} {
		code, said := g.get(t, path)
		if code == http.StatusNotFound {
			said = "404"
		}
		if said != want {
			t.Errorf("%s is %d %q, want %q", path, code, said, want)
		}
	}
	var document struct{ Region, InstanceID, AvailabilityZone string }
	if _, said := g.get(t, "dynamic/instance-identity/document"); json.Unmarshal([]byte(said), &document) != nil ||
		document.Region != "us-east-1" || document.InstanceID != m || document.AvailabilityZone != "us-east-1a" {
		t.Errorf("the document is %s", said)
	}
}

// TestTokens: without a valid token there is no answer.
func TestTokens(t *testing.T) {
	f := newFixture(t, nil)
	g := &guest{Handler: f.Metadata(f.machines(t, 1)[0])}
	const path = "meta-data/instance-id"
	want := func(when string, want int) {
		t.Helper()
		if code, _ := g.get(t, path); code != want {
			t.Errorf("%s: %d, want %d", when, code, want)
		}
	}
	want("without a token", http.StatusUnauthorized)
	for _, seconds := range []string{"", "0", "21601", "-1", "many"} {
		if code := g.enter(t, seconds); code != http.StatusBadRequest {
			t.Errorf("a token for %q seconds: %d", seconds, code)
		}
	}
	proxied := []string{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60", "X-Forwarded-For", "10.0.0.9"}
	if code, _ := g.ask(t, http.MethodPut, "/latest/api/token", proxied...); code != http.StatusForbidden {
		t.Errorf("through a proxy: %d", code)
	}
	if code, _ := g.ask(t, http.MethodGet, "/latest/api/token"); code != http.StatusMethodNotAllowed {
		t.Errorf("a token by GET: %d", code)
	}
	g.token = "made-up"
	want("with a token of its own", http.StatusUnauthorized)
	if code := g.enter(t, "60"); code != http.StatusOK {
		t.Fatalf("a token: %d", code)
	}
	want("with a token", http.StatusOK)
	if code, _ := g.ask(t, http.MethodPost, "/latest/"+path); code != http.StatusMethodNotAllowed {
		t.Errorf("by POST: %d", code)
	}
	f.pass(time.Minute)
	want("when it has ended", http.StatusUnauthorized)
}

// TestInterrupt: a spot machine's termination is announced, then it is terminated.
func TestInterrupt(t *testing.T) {
	f := newFixture(t, nil)
	id := f.run(t, map[string]string{"InstanceMarketOptions.MarketType": "spot"})
	other := f.run(t, map[string]string{"ClientToken": "other"})
	g := &guest{Handler: f.Metadata(id)}
	g.enter(t, "21600")
	if _, said := g.get(t, "meta-data/instance-life-cycle"); said != "spot" {
		t.Errorf("the life cycle is %q", said)
	}
	if f.Interrupt(other, time.Minute) == nil || f.Interrupt("i-0", time.Minute) == nil {
		t.Error("what is none of spot was interrupted")
	}
	if err := f.Interrupt(id, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	code, said := g.get(t, "meta-data/spot/instance-action")
	var notice struct{ Action, Time string }
	if err := json.Unmarshal([]byte(said), &notice); err != nil || code != http.StatusOK || notice.Action != "terminate" ||
		notice.Time != f.time().Add(2*time.Minute).Format(time.RFC3339) {
		t.Errorf("the notice: %d %s", code, said)
	}
	state := func() string { return f.Machines()[0].State }
	f.pass(time.Minute)
	if got := state(); got != "running" {
		t.Errorf("before its end it is %s", got)
	}
	f.pass(time.Minute)
	if got := state(); got != "shutting-down" {
		t.Errorf("at its end it is %s", got)
	}
	f.pass(time.Minute)
	if code, _ := g.get(t, "meta-data/instance-id"); code != http.StatusBadGateway { // a recorder's reply to a hang-up
		t.Errorf("afterwards its metadata service answers %d", code)
	}
}

// TestRole: credentials expire, and are renewed well before.
func TestRole(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Role, cfg.RoleLife = "server", time.Hour })
	g := &guest{Handler: f.Metadata(f.machines(t, 1)[0])}
	g.enter(t, "21600")
	if _, said := g.get(t, "meta-data/iam/security-credentials/"); said != "server" {
		t.Errorf("the role is %q", said)
	}
	if code, _ := g.get(t, "meta-data/iam/security-credentials/other"); code != http.StatusNotFound {
		t.Errorf("another role: %d", code)
	}
	seen := map[string]bool{}
	for range 4 {
		_, said := g.get(t, "meta-data/iam/security-credentials/server")
		var keys struct {
			Code, AccessKeyID, SecretAccessKey, Token string //nolint:gosec // made up
			Expiration                                time.Time
		}
		if err := json.Unmarshal([]byte(said), &keys); err != nil || keys.Code != "Success" || !strings.HasPrefix(keys.AccessKeyID, "ASIA") ||
			keys.SecretAccessKey == "" || keys.Token == "" || keys.Expiration.Sub(f.time()) <= 30*time.Minute {
			t.Errorf("keys at %v: %s", f.time(), said)
		}
		seen[keys.AccessKeyID] = true
		f.pass(30 * time.Minute)
	}
	if len(seen) != 4 {
		t.Errorf("four halves of their lives have %d keys", len(seen))
	}
}

// TestMetadataFails: the service is overloaded, hangs, or hangs up.
func TestMetadataFails(t *testing.T) {
	waited := time.Duration(0)
	f := newFixture(t, func(cfg *awstest.Config) {
		cfg.Wait = func(_ context.Context, d time.Duration) error { waited = d; return nil }
	})
	g := &guest{Handler: f.Metadata(f.machines(t, 1)[0])}
	g.enter(t, "21600")
	f.FailNext(awstest.MetadataService, 1, awstest.Fault{Status: http.StatusServiceUnavailable})
	f.FailNext(awstest.MetadataService, 1, awstest.Fault{Dropped: true})
	f.FailNext(awstest.MetadataService, 1, awstest.Fault{Delay: time.Hour})
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusOK} { // 502 is a recorder's reply to a hang-up
		if code, _ := g.get(t, "meta-data/instance-id"); code != want {
			t.Errorf("status %d, want %d", code, want)
		}
	}
	if waited != time.Hour {
		t.Errorf("waited for %s, want an hour", waited)
	}
}

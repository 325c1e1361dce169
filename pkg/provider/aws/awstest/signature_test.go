package awstest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// signed is a call that the SDK signed, and that was modified afterwards.
func (f *fixture) signed(t *testing.T, keys sdk.Credentials, change func(*http.Request)) reply {
	t.Helper()
	r := f.request(t, "DescribeSubnets", nil)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Del("Authorization")
	r.Header.Set("X-Amz-Target", "two  words") // must be signed, although EC2 does not use it
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, hex.EncodeToString(sum[:]), "ec2", "us-east-1", f.time()); err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if change != nil {
		change(r)
	}
	out, err := f.do(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSigned: with known keys, the signature must be correct and cover everything.
func TestSigned(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Keys = map[string]string{"AKIDTEST": "s3cret"} })
	good := sdk.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "s3cret"}
	unsign := func(name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), name, "", 1))
		}
	}
	for name, c := range map[string]struct {
		keys   sdk.Credentials
		change func(*http.Request)
		code   string
	}{
		"as it is":       {good, nil, ""},
		"unknown keys":   {sdk.Credentials{AccessKeyID: "AKIDOTHER", SecretAccessKey: "x"}, nil, ""},
		"another secret": {sdk.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "x"}, nil, "AuthFailure"},
		"another body": {good, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("Action=DescribeImages&Version=2016-11-15")), 40
		}, "AuthFailure"},
		"another header": {good, func(r *http.Request) { r.Header.Set("X-Amz-Target", "three") }, "AuthFailure"},
		"one more":       {good, func(r *http.Request) { r.Header.Set("X-Amz-Grant", "all") }, "AuthFailure"},
		"no host":        {good, unsign("host;"), "AuthFailure"},
		"no target":      {good, unsign(";x-amz-target"), "AuthFailure"},
		"no token":       {sdk.Credentials{AccessKeyID: "ASIATEST", SecretAccessKey: "x"}, nil, "AuthFailure"},
		"any token":      {sdk.Credentials{AccessKeyID: "ASIATEST", SecretAccessKey: "x", SessionToken: "t"}, nil, ""},
	} {
		if got := f.signed(t, c.keys, c.change); got.Code != c.code {
			t.Errorf("%s: %d %s %s, want %q", name, got.Status, got.Code, got.Message, c.code)
		}
	}
}

// TestKnownKeys: with KnownKeys, unknown keys are refused.
func TestKnownKeys(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Keys, cfg.KnownKeys = map[string]string{"AKIDTEST": "s3cret"}, true })
	for key, code := range map[string]string{"AKIDTEST": "", "AKIDOTHER": "AuthFailure"} {
		if got := f.signed(t, sdk.Credentials{AccessKeyID: key, SecretAccessKey: "s3cret"}, nil); got.Code != code {
			t.Errorf("%s: %d %s %s, want %q", key, got.Status, got.Code, got.Message, code)
		}
	}
	if secret, known := f.IAM.Secret("AKIDTEST", ""); secret != "s3cret" || !known {
		t.Errorf("the secret key is %q, %v", secret, known)
	}
	for key, token := range map[string]string{"AKIDTEST": "t", "AKIDOTHER": ""} {
		if _, known := f.IAM.Secret(key, token); known {
			t.Errorf("%s with the token %q is known", key, token)
		}
	}
}

// TestRoleSigns: a role's keys are valid with their token, until they expire.
func TestRoleSigns(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Role, cfg.RoleLife = "server", time.Hour })
	g := &guest{Handler: f.Metadata(f.machines(t, 1)[0])}
	g.enter(t, "21600")
	_, said := g.get(t, "meta-data/iam/security-credentials/server")
	var keys struct {
		AccessKeyID, SecretAccessKey, Token string //nolint:gosec // made up
	}
	if err := json.Unmarshal([]byte(said), &keys); err != nil {
		t.Fatal(err)
	}
	good := sdk.Credentials{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.Token}
	other := good
	other.SessionToken = "t"
	for _, c := range []struct {
		keys sdk.Credentials
		code string
		pass time.Duration
	}{{good, "", 0}, {other, "AuthFailure", time.Hour}, {good, "RequestExpired", 0}} {
		if got := f.signed(t, c.keys, nil); got.Code != c.code {
			t.Errorf("%+v: %d %s %s", c, got.Status, got.Code, got.Message)
		}
		f.pass(c.pass)
	}
}

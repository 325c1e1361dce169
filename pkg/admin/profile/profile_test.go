package profile_test

import (
	"context"
	"crypto/sha1" // names the file of a sign-on, as AWS's tools do
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/profile"
	"github.com/nstance/nstance/pkg/awsclient"
)

// home is a home with the files that AWS's tools read, and no other setting of AWS.
func home(t *testing.T, config, credentials string) string {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	write(t, filepath.Join(dir, ".aws", "config"), config)
	write(t, filepath.Join(dir, ".aws", "credentials"), credentials)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// noCode has no code for any device.
func noCode(device string) (string, error) { return "", errors.New("no code of " + device) }

// load returns the id of the keys; empty: there are none.
func load(t *testing.T, code func(string) (string, error)) (cfg awsclient.Config, id string, err error) {
	t.Helper()
	cfg, err = profile.Load(t.Context(), code)
	if err != nil || cfg.Credentials == nil {
		return cfg, "", err
	}
	keys, err := cfg.Credentials.Retrieve(t.Context())
	return cfg, keys.AccessKeyID, err
}

// service is one of AWS that gives keys. It notes what it was asked.
type service struct {
	*httptest.Server
	asked []string
}

func serve(t *testing.T, variable string, answer func(w http.ResponseWriter, r *http.Request) string) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, answer(w, r))
	}))
	t.Cleanup(s.Close)
	t.Setenv(variable, s.URL)
	return s
}

// tokens is the service that has roles taken on. It notes by which keys, and with which code.
func tokens(t *testing.T) *service {
	t.Helper()
	return serve(t, "AWS_ENDPOINT_URL_STS", func(w http.ResponseWriter, r *http.Request) string {
		_, signed, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		scope := strings.Split(signed, "/") // the keys, the day, the region
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>`+
			`<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleResult></AssumeRoleResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		said := []string{r.FormValue("Action"), r.FormValue("RoleArn"), r.FormValue("TokenCode"), scope[0], scope[2]}
		return strings.Join(said, " ")
	})
}

const (
	keysOfBase = "[base]\naws_access_key_id = BASE\naws_secret_access_key = s\n"
	keysOf     = "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n" + keysOfBase
)

// TestKeys: whose keys are used, by what the environment and the files say.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		env         map[string]string
		config      string
		credentials string
		want        string
	}{
		"nothing":            {},
		"the default one":    {credentials: keysOf, want: "AKIADEFAULT"},
		"a named one":        {env: map[string]string{"AWS_PROFILE": "base"}, credentials: keysOf, want: "BASE"},
		"keys in the config": {config: strings.ReplaceAll(keysOf, "[base]", "[profile base]"), want: "AKIADEFAULT"},
		"the environment's":  {env: map[string]string{"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s"}, credentials: keysOf},
		"both named": {
			env:         map[string]string{"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "base"},
			credentials: keysOf,
		},
		"a region alone": {config: "[default]\nregion = eu-west-3\n"},
		"a program's": {
			config: "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"AKIAPROGRAM\", \"SecretAccessKey\": \"s\"}'\n",
			want:   "AKIAPROGRAM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, c.config, c.credentials)
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			if _, id, err := load(t, noCode); id != c.want || err != nil {
				t.Errorf("the keys are %q, %v; want %q", id, err, c.want)
			}
		})
	}
}

// TestOtherFiles: the variables of AWS's own tools say where the files are.
func TestOtherFiles(t *testing.T) {
	dir := home(t, "", "")
	write(t, filepath.Join(dir, "c"), "[profile far]\nregion = eu-west-3\n")
	write(t, filepath.Join(dir, "k"), "[far]\naws_access_key_id = AKIAFAR\naws_secret_access_key = s\n")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "c"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "k"))
	t.Setenv("AWS_PROFILE", "far")
	if cfg, id, err := load(t, noCode); err != nil || id != "AKIAFAR" || cfg.Getenv("AWS_REGION") != "eu-west-3" {
		t.Errorf("%q, %v", id, err)
	}
}

// TestRole: a role is taken on with the keys of another profile, and with the code that it wants.
func TestRole(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/admin"
	home(t, "[profile admin]\nregion = eu-west-3\nrole_arn = "+role+"\nsource_profile = base\n"+
		"[profile careful]\nregion = eu-west-3\nrole_arn = "+role+"\nsource_profile = base\n"+
		"mfa_serial = arn:aws:iam::123456789012:mfa/alice\n", keysOf)
	sts := tokens(t)
	t.Setenv("AWS_PROFILE", "admin")
	if _, id, err := load(t, noCode); id != "ASIAROLE" || err != nil {
		t.Errorf("a role: %q, %v", id, err)
	}
	t.Setenv("AWS_PROFILE", "careful")
	if _, id, err := load(t, noCode); err == nil || !strings.Contains(err.Error(), "no code of arn:aws:iam::123456789012:mfa/alice") {
		t.Errorf("without a code: %q, %v", id, err)
	}
	if _, id, err := load(t, func(string) (string, error) { return "123456", nil }); id != "ASIAROLE" || err != nil {
		t.Errorf("with a code: %q, %v", id, err)
	}
	want := []string{"AssumeRole " + role + "  BASE eu-west-3", "AssumeRole " + role + " 123456 BASE eu-west-3"}
	if !slices.Equal(sts.asked, want) {
		t.Errorf("asked %q, want %q", sts.asked, want)
	}
}

// signOn makes a home with a sign-on that lasts until then.
func signOn(t *testing.T, until time.Time) {
	t.Helper()
	dir := home(t, "[profile work]\nregion = eu-west-3\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = Admin\n"+
		"[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example.com/start\n"+
		"sso_registration_scopes = sso:account:access\n", "")
	sum := sha1.Sum([]byte("corp"))
	write(t, filepath.Join(dir, ".aws", "sso", "cache", hex.EncodeToString(sum[:])+".json"),
		fmt.Sprintf(`{"accessToken": "signed-on", "expiresAt": %q}`, until.UTC().Format(time.RFC3339)))
	t.Setenv("AWS_PROFILE", "work")
}

// TestSignOn: the keys of a person who has signed on, and what to do when that is over.
func TestSignOn(t *testing.T) {
	portal := func() *service {
		return serve(t, "AWS_ENDPOINT_URL_SSO", func(w http.ResponseWriter, r *http.Request) string {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"roleCredentials": {"accessKeyId": "ASIASSO", "secretAccessKey": "s", "sessionToken": "t", "expiration": %d}}`,
				time.Now().Add(time.Hour).UnixMilli())
			return r.FormValue("account_id") + " " + r.FormValue("role_name") + " " + r.Header.Get("X-Amz-Sso_bearer_token")
		})
	}
	signOn(t, time.Now().Add(time.Hour))
	s := portal()
	if _, id, err := load(t, noCode); id != "ASIASSO" || err != nil || !slices.Equal(s.asked, []string{"123456789012 Admin signed-on"}) {
		t.Errorf("%q, %v; asked %q", id, err, s.asked)
	}
	signOn(t, time.Now().Add(-time.Hour))
	s = portal()
	if _, id, err := load(t, noCode); err == nil || !strings.Contains(err.Error(), "aws sso login --profile work") || len(s.asked) != 0 {
		t.Errorf("when it is over: %q, %v; asked %q", id, err, s.asked)
	}
}

// TestWrong: what is wrong is said once, by the names of the profile and of the files.
func TestWrong(t *testing.T) {
	for name, c := range map[string]struct {
		env    map[string]string
		config string
		says   []string
	}{
		"no such profile": {
			map[string]string{"AWS_PROFILE": "nope"}, "[profile other]\nregion = r\n",
			[]string{`AWS_PROFILE is "nope": want a profile of `, "/.aws/config", "/.aws/credentials"},
		},
		"not that one either": {
			map[string]string{"AWS_PROFILE": "nope", "AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s"}, "",
			[]string{`AWS_PROFILE is "nope"`},
		},
		"no such source": {
			nil, "[default]\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = gone\n", []string{`the profile "default"`, "gone", "/.aws/config"},
		},
		"no such session": {nil, "[default]\nsso_session = gone\n", []string{`the profile "default"`, "gone"}},
		"a program fails": {nil, "[default]\ncredential_process = false\n", []string{`get the keys of the profile "default"`}},
		"a bad boolean":   {map[string]string{"AWS_USE_FIPS_ENDPOINT": "maybe"}, "", []string{"AWS_USE_FIPS_ENDPOINT", "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, c.config, "")
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			_, id, err := load(t, noCode)
			if err == nil {
				t.Fatalf("the keys are %q", id)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want an error that says %s", err, says)
				}
			}
		})
	}
}

// TestSettings: what the environment says of hosts comes before what a profile does.
func TestSettings(t *testing.T) {
	const text = "[default]\nregion = eu-west-3\nuse_fips_endpoint = true\nuse_dualstack_endpoint = false\nendpoint_url = http://all\n" +
		"services = mine\n[services mine]\ns3 =\n  endpoint_url = http://s3\nsecrets_manager =\n  endpoint_url = http://secrets\n"
	for name, c := range map[string]struct{ env, want map[string]string }{
		"the profile's": {nil, map[string]string{
			"AWS_REGION": "eu-west-3", "AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "false", "AWS_ENDPOINT_URL": "http://all",
			"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://secrets", "AWS_ENDPOINT_URL_SSM": "",
			"AWS_ACCESS_KEY_ID": "",
		}},
		"the environment's": {
			map[string]string{
				"AWS_DEFAULT_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "false", "AWS_USE_DUALSTACK_ENDPOINT": "true",
				"AWS_ENDPOINT_URL": "http://mine",
			},
			map[string]string{
				"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "false", "AWS_USE_DUALSTACK_ENDPOINT": "true",
				"AWS_ENDPOINT_URL": "http://mine", "AWS_ENDPOINT_URL_S3": "",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, text, "")
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			cfg, _, err := load(t, noCode)
			if err != nil {
				t.Fatal(err)
			}
			for variable, want := range c.want {
				if got := cfg.Getenv(variable); got != want {
					t.Errorf("%s is %q, want %q", variable, got, want)
				}
			}
		})
	}
}

// TestNoAnswer: a success without keys, such as the page of a proxy, is an error.
func TestNoAnswer(t *testing.T) {
	for _, page := range []string{"", "{}", "<html></html>", "<AssumeRoleResponse><AssumeRoleResult/></AssumeRoleResponse>",
		"<AssumeRoleResponse><AssumeRoleResult><Credentials/></AssumeRoleResult></AssumeRoleResponse>", `{"roleCredentials": {}}`} {
		answer := func(w http.ResponseWriter, _ *http.Request) string {
			fmt.Fprint(w, page)
			return ""
		}
		home(t, "[profile admin]\nregion = eu-west-3\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = base\n", keysOf)
		t.Setenv("AWS_PROFILE", "admin")
		serve(t, "AWS_ENDPOINT_URL_STS", answer)
		if _, id, err := load(t, noCode); err == nil {
			t.Errorf("a role, answered %q: %q", page, id)
		}
		signOn(t, time.Now().Add(time.Hour))
		serve(t, "AWS_ENDPOINT_URL_SSO", answer)
		if _, id, err := load(t, noCode); err == nil {
			t.Errorf("a sign-on, answered %q: %q", page, id)
		}
	}
}

// TestEnds: a service that never answers is given up with the command.
func TestEnds(t *testing.T) {
	home(t, "[default]\nregion = eu-west-3\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = base\n", keysOfBase)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	serve(t, "AWS_ENDPOINT_URL_STS", func(http.ResponseWriter, *http.Request) string {
		cancel()
		<-ended
		return ""
	})
	t.Cleanup(func() { close(ended) }) // before the server, which waits for it
	if _, err := profile.Load(ctx, noCode); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want an end", err)
	}
}

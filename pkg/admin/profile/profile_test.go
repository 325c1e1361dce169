package profile_test

import (
	"context"
	"crypto/sha1" // for the name of a sign-on's cache file
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

// writeHome writes the files that AWS's tools read to a temporary home, and unsets all AWS
// variables.
func writeHome(t *testing.T, config, credentials string) string {
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

// noCode fails to return an MFA code.
func noCode(device string) (string, error) { return "", errors.New("no code of " + device) }

// load returns the config, and the ID of the profile's keys, or "".
func load(t *testing.T, code func(string) (string, error)) (cfg awsclient.Config, id string, err error) {
	t.Helper()
	cfg, err = profile.Load(t.Context(), code)
	if err != nil || cfg.Credentials == nil {
		return cfg, "", err
	}
	keys, err := cfg.Credentials.Retrieve(t.Context())
	return cfg, keys.AccessKeyID, err
}

// service is an AWS service that issues keys, and records its requests.
type service struct {
	*httptest.Server
	requests []string
}

func serve(t *testing.T, variable string, respond func(w http.ResponseWriter, r *http.Request) string) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests = append(s.requests, respond(w, r))
	}))
	t.Cleanup(s.Close)
	t.Setenv(variable, s.URL)
	return s
}

// serveSTS serves AssumeRole, and records the signing keys and the MFA codes.
func serveSTS(t *testing.T) *service {
	t.Helper()
	return serve(t, "AWS_ENDPOINT_URL_STS", func(w http.ResponseWriter, r *http.Request) string {
		_, signed, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		scope := strings.Split(signed, "/") // key ID, date, region
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>`+
			`<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleResult></AssumeRoleResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		fields := []string{r.FormValue("Action"), r.FormValue("RoleArn"), r.FormValue("TokenCode"), scope[0], scope[2]}
		return strings.Join(fields, " ")
	})
}

const (
	baseKeys = "[base]\naws_access_key_id = BASE\naws_secret_access_key = s\n"
	allKeys  = "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n" + baseKeys
)

// TestKeys: the environment and the files determine the keys.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		env         map[string]string
		config      string
		credentials string
		want        string
	}{
		"nothing":            {},
		"default profile":    {credentials: allKeys, want: "AKIADEFAULT"},
		"AWS_PROFILE":        {env: map[string]string{"AWS_PROFILE": "base"}, credentials: allKeys, want: "BASE"},
		"keys in the config": {config: strings.ReplaceAll(allKeys, "[base]", "[profile base]"), want: "AKIADEFAULT"},
		"environment":        {env: map[string]string{"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s"}, credentials: allKeys},
		"environment and AWS_PROFILE": {
			env:         map[string]string{"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "base"},
			credentials: allKeys,
		},
		"region only": {config: "[default]\nregion = eu-west-3\n"},
		"credential_process": {
			config: "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"AKIAPROGRAM\", \"SecretAccessKey\": \"s\"}'\n",
			want:   "AKIAPROGRAM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			writeHome(t, c.config, c.credentials)
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			if _, id, err := load(t, noCode); id != c.want || err != nil {
				t.Errorf("the keys are %q, %v; want %q", id, err, c.want)
			}
		})
	}
}

// TestOtherFiles: the variables of AWS's tools set the paths of the files.
func TestOtherFiles(t *testing.T) {
	dir := writeHome(t, "", "")
	write(t, filepath.Join(dir, "c"), "[profile other]\nregion = eu-west-3\n")
	write(t, filepath.Join(dir, "k"), "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = s\n")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "c"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "k"))
	t.Setenv("AWS_PROFILE", "other")
	if cfg, id, err := load(t, noCode); err != nil || id != "AKIAOTHER" || cfg.Getenv("AWS_REGION") != "eu-west-3" {
		t.Errorf("%q, %v", id, err)
	}
}

// TestRole: a role is assumed with the keys of another profile, and with an MFA code if it
// requires one.
func TestRole(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/admin"
	writeHome(t, "[profile admin]\nregion = eu-west-3\nrole_arn = "+role+"\nsource_profile = base\n"+
		"[profile mfa]\nregion = eu-west-3\nrole_arn = "+role+"\nsource_profile = base\n"+
		"mfa_serial = arn:aws:iam::123456789012:mfa/alice\n", allKeys)
	sts := serveSTS(t)
	t.Setenv("AWS_PROFILE", "admin")
	if _, id, err := load(t, noCode); id != "ASIAROLE" || err != nil {
		t.Errorf("without MFA: %q, %v", id, err)
	}
	t.Setenv("AWS_PROFILE", "mfa")
	if _, id, err := load(t, noCode); err == nil || !strings.Contains(err.Error(), "no code of arn:aws:iam::123456789012:mfa/alice") {
		t.Errorf("without a code: %q, %v", id, err)
	}
	if _, id, err := load(t, func(string) (string, error) { return "123456", nil }); id != "ASIAROLE" || err != nil {
		t.Errorf("with a code: %q, %v", id, err)
	}
	want := []string{"AssumeRole " + role + "  BASE eu-west-3", "AssumeRole " + role + " 123456 BASE eu-west-3"}
	if !slices.Equal(sts.requests, want) {
		t.Errorf("requests %q, want %q", sts.requests, want)
	}
}

// writeSignOn writes a home with a sign-on that lasts until then.
func writeSignOn(t *testing.T, until time.Time) {
	t.Helper()
	dir := writeHome(t, "[profile work]\nregion = eu-west-3\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = Admin\n"+
		"[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example.com/start\n"+
		"sso_registration_scopes = sso:account:access\n", "")
	sum := sha1.Sum([]byte("corp"))
	write(t, filepath.Join(dir, ".aws", "sso", "cache", hex.EncodeToString(sum[:])+".json"),
		fmt.Sprintf(`{"accessToken": "signed-on", "expiresAt": %q}`, until.UTC().Format(time.RFC3339)))
	t.Setenv("AWS_PROFILE", "work")
}

// TestSignOn: the keys of a single sign-on, and the error after its expiry, which names the
// command to sign on again.
func TestSignOn(t *testing.T) {
	portal := func() *service {
		return serve(t, "AWS_ENDPOINT_URL_SSO", func(w http.ResponseWriter, r *http.Request) string {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"roleCredentials": {"accessKeyId": "ASIASSO", "secretAccessKey": "s", "sessionToken": "t", "expiration": %d}}`,
				time.Now().Add(time.Hour).UnixMilli())
			return r.FormValue("account_id") + " " + r.FormValue("role_name") + " " + r.Header.Get("X-Amz-Sso_bearer_token")
		})
	}
	writeSignOn(t, time.Now().Add(time.Hour))
	s := portal()
	if _, id, err := load(t, noCode); id != "ASIASSO" || err != nil || !slices.Equal(s.requests, []string{"123456789012 Admin signed-on"}) {
		t.Errorf("%q, %v; requests %q", id, err, s.requests)
	}
	writeSignOn(t, time.Now().Add(-time.Hour))
	s = portal()
	if _, id, err := load(t, noCode); err == nil || !strings.Contains(err.Error(), "aws sso login --profile work") || len(s.requests) != 0 {
		t.Errorf("expired: %q, %v; requests %q", id, err, s.requests)
	}
}

// TestErrors: an error names the profile and the files.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		env    map[string]string
		config string
		want   []string
	}{
		"no such profile": {
			map[string]string{"AWS_PROFILE": "nope"}, "[profile other]\nregion = r\n",
			[]string{`AWS_PROFILE is "nope": want a profile of `, "/.aws/config", "/.aws/credentials"},
		},
		"no such profile, keys in the environment": {
			map[string]string{"AWS_PROFILE": "nope", "AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "s"}, "",
			[]string{`AWS_PROFILE is "nope"`},
		},
		"no such source profile": {
			nil, "[default]\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = gone\n", []string{`the profile "default"`, "gone", "/.aws/config"},
		},
		"no such sign-on session": {nil, "[default]\nsso_session = gone\n", []string{`the profile "default"`, "gone"}},
		"plain HTTP for a role": {
			map[string]string{"AWS_ENDPOINT_URL_STS": "http://192.0.2.1:1"},
			"[default]\nregion = r\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = base\n[profile base]\n" +
				"aws_access_key_id = A\naws_secret_access_key = s\n",
			[]string{`the profile "default"`, `is "http://192.0.2.1:1/", plain HTTP to a remote host`, "NSTANCE_INSECURE_STORAGE=true"},
		},
		"failing credential_process": {nil, "[default]\ncredential_process = false\n", []string{`get the keys of the profile "default"`}},
		"invalid boolean":            {map[string]string{"AWS_USE_FIPS_ENDPOINT": "maybe"}, "", []string{"AWS_USE_FIPS_ENDPOINT", "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			writeHome(t, c.config, "")
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			_, id, err := load(t, noCode)
			if err == nil {
				t.Fatalf("the keys are %q", id)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want an error with %s", err, want)
				}
			}
		})
	}
}

// TestSettings: settings of hosts in the environment take precedence over those of a profile.
func TestSettings(t *testing.T) {
	const text = "[default]\nregion = eu-west-3\nuse_fips_endpoint = true\nuse_dualstack_endpoint = false\nendpoint_url = http://all\n" +
		"services = mine\n[services mine]\ns3 =\n  endpoint_url = http://s3\nsecrets_manager =\n  endpoint_url = http://secrets\n"
	for name, c := range map[string]struct{ env, want map[string]string }{
		"profile": {nil, map[string]string{
			"AWS_REGION": "eu-west-3", "AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "false", "AWS_ENDPOINT_URL": "http://all",
			"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://secrets", "AWS_ENDPOINT_URL_SSM": "",
			"AWS_ACCESS_KEY_ID": "",
		}},
		"environment": {
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
			writeHome(t, text, "")
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

// TestResponseWithoutKeys: a successful response without keys, such as a proxy's page, is an
// error.
func TestResponseWithoutKeys(t *testing.T) {
	for _, page := range []string{"", "{}", "<html></html>", "<AssumeRoleResponse><AssumeRoleResult/></AssumeRoleResponse>",
		"<AssumeRoleResponse><AssumeRoleResult><Credentials/></AssumeRoleResult></AssumeRoleResponse>", `{"roleCredentials": {}}`} {
		respond := func(w http.ResponseWriter, _ *http.Request) string {
			fmt.Fprint(w, page)
			return ""
		}
		writeHome(t, "[profile admin]\nregion = eu-west-3\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = base\n", allKeys)
		t.Setenv("AWS_PROFILE", "admin")
		serve(t, "AWS_ENDPOINT_URL_STS", respond)
		if _, id, err := load(t, noCode); err == nil {
			t.Errorf("a role with the response %q: %q", page, id)
		}
		writeSignOn(t, time.Now().Add(time.Hour))
		serve(t, "AWS_ENDPOINT_URL_SSO", respond)
		if _, id, err := load(t, noCode); err == nil {
			t.Errorf("a sign-on with the response %q: %q", page, id)
		}
	}
}

// TestContextEndsLoad: the end of the context ends the wait for a service.
func TestContextEndsLoad(t *testing.T) {
	writeHome(t, "[default]\nregion = eu-west-3\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = base\n", baseKeys)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	serve(t, "AWS_ENDPOINT_URL_STS", func(http.ResponseWriter, *http.Request) string {
		cancel()
		<-ended
		return ""
	})
	t.Cleanup(func() { close(ended) }) // before the server's Close, which waits for the handler
	if _, err := profile.Load(ctx, noCode); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

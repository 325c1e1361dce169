package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/s3"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// noKeys removes credentials from the environment, and the files in the home directory.
func noKeys(t *testing.T) {
	t.Helper()
	for _, variable := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_DISABLED", "AWS_PROFILE",
		"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
	} {
		t.Setenv(variable, "")
	}
	t.Setenv("HOME", t.TempDir())
}

// store is a minimal S3 that accepts all writes, and records the key that signed each; empty:
// unsigned.
type store struct{ ids []string }

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	id, _, _ := strings.Cut(after, "/")
	s.ids = append(s.ids, id)
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // the body is irrelevant
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"new"`}}, Body: http.NoBody, Request: r}, nil
}

// put writes with cfg's credentials, and returns the signing key; empty: nothing was sent.
func put(t *testing.T, to *s3.Store, wire *store) (string, error) {
	t.Helper()
	n := len(wire.ids)
	_, err := to.Put(t.Context(), "a", []byte("b"), object.IfAbsent())
	if len(wire.ids) == n {
		return "", err
	}
	if wire.ids[n] == "" {
		t.Error("a write went out without a signature")
	}
	return wire.ids[n], err
}

func withKeys(t *testing.T, wire *store, change func(*s3.Config)) *s3.Store {
	t.Helper()
	cfg := s3.Config{Bucket: "bucket", Endpoint: "https://s3.test", PathStyle: true, Transport: wire}
	if change != nil {
		change(&cfg)
	}
	s, err := s3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRole: writes are signed with the machine's role keys while those are valid, even if the
// metadata service fails, and are not sent afterwards.
func TestRole(t *testing.T) {
	noKeys(t)
	for name, fault := range map[string]awstest.Fault{"503": {Status: http.StatusServiceUnavailable}, "hangs": {Delay: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			cloud := awstest.New(awstest.Config{Region: "r", Role: "server", RoleLife: 6 * time.Hour})
			metadata := cloud.Metadata(cloud.AddMachine("subnet-0000000a", nil, false))
			wire := &store{}
			s := withKeys(t, wire, func(cfg *s3.Config) { cfg.Local = awsclienttest.Serve(t, metadata, "r").HTTPClient })
			id, err := put(t, s, wire)
			if err != nil || !strings.HasPrefix(id, "ASIA") {
				t.Fatalf("%s: first: %q, %v", name, id, err)
			}
			cloud.FailNext(awstest.MetadataService, 10000, fault)
			for began := time.Now(); time.Since(began) < 359*time.Minute; time.Sleep(10 * time.Minute) {
				before := time.Now()
				if again, err := put(t, s, wire); err != nil || again != id || time.Since(before) != 0 {
					t.Errorf("%s, after %s: %q, %v in %s", name, time.Since(began), again, err, time.Since(before))
				}
			}
			time.Sleep(time.Hour)
			before := time.Now()
			if again, err := put(t, s, wire); again != "" || !errors.Is(err, object.ErrUnknown) || time.Since(before) > 10*time.Second {
				t.Errorf("%s, when they have expired: %q, %v in %s", name, again, err, time.Since(before))
			}
			cloud.ClearFaults()
			time.Sleep(time.Minute)
			if again, err := put(t, s, wire); err != nil || !strings.HasPrefix(again, "ASIA") || again == id {
				t.Errorf("%s, afterwards: %q, %v", name, again, err)
			}
		})
	}
}

// TestKeysThatDoNotCome: a caller with a deadline of a second waits no longer, whatever other
// callers wait for.
func TestKeysThatDoNotCome(t *testing.T) {
	noKeys(t)
	synctest.Test(t, func(t *testing.T) {
		cloud := awstest.New(awstest.Config{Region: "r", Role: "server"})
		metadata := cloud.Metadata(cloud.AddMachine("subnet-0000000a", nil, false))
		s := withKeys(t, &store{}, func(cfg *s3.Config) { cfg.Local = awsclienttest.Serve(t, metadata, "r").HTTPClient })
		cloud.FailNext(awstest.MetadataService, 10000, awstest.Fault{Delay: time.Hour})
		patient := make(chan error, 1)
		go func() {
			_, err := s.Put(t.Context(), "a", nil, object.IfAbsent())
			patient <- err
		}()
		time.Sleep(500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := s.Get(ctx, "a"); !errors.Is(err, object.ErrUnknown) || time.Since(began) != time.Second {
			t.Errorf("with a second to wait: %v after %s", err, time.Since(began))
		}
		if err := <-patient; !errors.Is(err, object.ErrUnknown) || time.Since(began) > 10*time.Second {
			t.Errorf("with more: %v after %s", err, time.Since(began))
		}
		time.Sleep(time.Minute) // concurrent requests end
	})
}

// TestFile: the shared credentials file takes precedence over a role, permanently.
func TestFile(t *testing.T) {
	noKeys(t)
	file := filepath.Join(os.Getenv("HOME"), ".aws", "credentials")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	write("[default]\naws_access_key_id = half\n")
	wire := &store{}
	id, err := put(t, withKeys(t, wire, nil), wire)
	if id != "" || err == nil || !strings.Contains(err.Error(), "partial static credentials") {
		t.Errorf("half a key in the file: %q, %v", id, err)
	}
	write("[default]\naws_access_key_id = file\naws_secret_access_key = secret\n")
	s := withKeys(t, wire, nil)
	for range 2 {
		if id, err := put(t, s, wire); id != "file" || err != nil {
			t.Errorf("from the file: %q, %v", id, err)
		}
	}
}

// TestWebIdentity: a pod's token is exchanged for keys, unless there are container credentials.
func TestWebIdentity(t *testing.T) {
	noKeys(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("who I am"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")
	known := true
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("WebIdentityToken") != "who I am" || r.FormValue("RoleArn") == "" || !known {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`+
			"<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAPOD</AccessKeyId>"+
			"<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials>"+
			"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(sts.Close)
	wire := &store{}
	service := func(cfg *s3.Config) { cfg.TokenService = sts.URL }
	if id, err := put(t, withKeys(t, wire, service), wire); id != "ASIAPOD" || err != nil {
		t.Errorf("with a web identity: %q, %v", id, err)
	}
	known = false
	if id, err := put(t, withKeys(t, wire, service), wire); id != "" || err == nil {
		t.Errorf("with an unknown one: %q, %v", id, err)
	}
	inContainer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"AccessKeyId": "ASIABOX", "SecretAccessKey": "s", "Token": "t"}`)
	}))
	t.Cleanup(inContainer.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", inContainer.URL)
	if id, err := put(t, withKeys(t, wire, service), wire); id != "ASIABOX" || err != nil {
		t.Errorf("in a container, as the rest of AWS: %q, %v", id, err)
	}
}

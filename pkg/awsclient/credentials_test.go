package awsclient_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
)

// noKeys removes credentials from the environment.
func noKeys(t *testing.T) {
	t.Helper()
	for _, variable := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_DISABLED",
	} {
		t.Setenv(variable, "")
	}
}

// TestWebIdentity: the machine's role never replaces a pod's.
func TestWebIdentity(t *testing.T) {
	noKeys(t)
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token")
	_, err := awsclient.Config{Region: "r"}.Open(t.Context())
	for _, says := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "EKS Pod Identity", "AWS_ACCESS_KEY_ID"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want what to do, such as %s", err, says)
		}
	}
	for variable, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKID", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			if _, err := (awsclient.Config{Region: "r"}).Open(t.Context()); err != nil || awsclient.WebIdentity() {
				t.Errorf("%v, a web identity: %t", err, awsclient.WebIdentity())
			}
		})
	}
}

// recorder is a metadata service without sessions, which is version 1, and records its requests.
type recorder struct {
	asked []string
}

func (m *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	m.asked = append(m.asked, r.Method+" "+r.URL.String())
	status := http.StatusOK
	if r.Method == http.MethodPut {
		status = http.StatusForbidden
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("role")), Request: r}, nil
}

// TestMetadataVersion: a service without sessions gets no further requests.
func TestMetadataVersion(t *testing.T) {
	noKeys(t)
	for mode, want := range map[string]string{
		"": "http://169.254.169.254/", "ipv4": "http://169.254.169.254/", "IPv6": "http://[fd00:ec2::254]/",
	} {
		t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", mode)
		m := &recorder{}
		s, err := awsclient.Config{Region: "r", Local: &http.Client{Transport: m}}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Credentials.Retrieve(t.Context()); err == nil {
			t.Errorf("mode %q: keys without a session", mode)
		}
		if len(m.asked) == 0 {
			t.Errorf("mode %q: nothing was asked", mode)
		}
		for _, asked := range m.asked {
			if asked != "PUT "+want+"latest/api/token" {
				t.Errorf("mode %q: %s", mode, asked)
			}
		}
	}
}

// TestContainerHangs: an endpoint without an answer is abandoned in time for a retry.
func TestContainerHangs(t *testing.T) {
	noKeys(t)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/role")
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		cfg := awsclienttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				<-r.Context().Done()
				return
			}
			fmt.Fprintf(w, `{"AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "t", "Expiration": %q}`,
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}), "r")
		cfg.Credentials, cfg.Local = nil, cfg.HTTPClient
		s, err := cfg.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		keys, err := s.Credentials.Retrieve(t.Context())
		if took := time.Since(began); err != nil || keys.AccessKeyID != "ASIA" || took < 5*time.Second || took > 8*time.Second {
			t.Errorf("%s, %v after %s", keys.AccessKeyID, err, took)
		}
	})
}

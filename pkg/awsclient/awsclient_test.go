package awsclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient"
)

// TestTheMachineTells: settings that nothing else provides come from the metadata service, with a
// session.
func TestTheMachineTells(t *testing.T) {
	const token, document = "session", `{"instanceId":"i-0123456789abcdef0","region":"eu-central-1"}`
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, token)
	})
	mux.HandleFunc("GET /latest/dynamic/instance-identity/document", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Aws-Ec2-Metadata-Token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, document)
	})
	mux.HandleFunc("GET /latest/meta-data/instance-id", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "i-0123456789abcdef0") })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, variable := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(variable, "")
	}
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	if id, err := awsclient.InstanceID(t.Context(), nil); err != nil || id != "i-0123456789abcdef0" {
		t.Errorf("the machine is %q, %v", id, err)
	}
	if s, err := (awsclient.Config{}).Open(t.Context()); err != nil || s.Region != "eu-central-1" {
		t.Errorf("the region is %q, %v", s.Region, err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if id, err := awsclient.InstanceID(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "from the metadata service") {
		t.Errorf("a machine that tells nothing is %q, %v", id, err)
	}
}

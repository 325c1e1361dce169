package awsclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
)

// askVariable makes the test binary ask for what the machine tells: the variables of a proxy are
// read only once per process.
const askVariable = "NSTANCE_TEST_ASK"

// TestNoProxyForTheMachine: a proxy hears no question about the machine or the container, and so
// learns no keys; calls to the cloud go through it.
func TestNoProxyForTheMachine(t *testing.T) {
	if what := os.Getenv(askVariable); what != "" {
		ask(t, what)
		return
	}
	for what, c := range map[string]struct {
		env   []string
		heard bool
	}{
		"id":        {nil, false},
		"id, IPv6":  {[]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6"}, false},
		"keys":      {nil, false},
		"container": {[]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/keys"}, false},
		"remote":    {[]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=https://keys.invalid/"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var heard atomic.Bool
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				heard.Store(true)
				w.WriteHeader(http.StatusBadGateway)
			}))
			t.Cleanup(proxy.Close)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoProxyForTheMachine$")
			child.Env = append(os.Environ(), append(c.env, askVariable+"="+what, "HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL,
				"NO_PROXY=", "no_proxy=", "http_proxy=", "https_proxy=", "AWS_ACCESS_KEY_ID=", "AWS_EC2_METADATA_SERVICE_ENDPOINT=",
				"AWS_EC2_METADATA_DISABLED=")...)
			if out, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if heard.Load() != c.heard {
				t.Errorf("the proxy was asked: %t, want %t", heard.Load(), c.heard)
			}
		})
	}
}

// ask asks, whether there is an answer or not.
func ask(t *testing.T, what string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	switch what {
	case "id", "id, IPv6":
		_, err := awsclient.InstanceID(ctx, nil)
		t.Log(err)
	default:
		keys, err := awsclient.Config{}.Ask()
		if err != nil {
			t.Fatal(err)
		}
		_, err = keys(ctx)
		t.Log(err)
	}
}

package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
)

// checkStorage runs the command with an environment of its own.
func checkStorage(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = cli.Run(context.Background(), cli.Env{
		Args: append([]string{"storage", "check"}, args...), Getenv: func(k string) string { return env[k] },
		Stdout: &out, Stderr: &errOut, Now: time.Now, Random: rand.Reader,
	})
	return code, out.String(), errOut.String()
}

func TestStorageCheck(t *testing.T) {
	dir := t.TempDir()
	code, out, errOut := checkStorage(nil, "--storage-provider", "dir", "--storage-bucket", dir)
	if code != 0 || !strings.Contains(out, "make again after a delete") || strings.Contains(out, "not checked") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	code, out, errOut = checkStorage(nil, "--storage-provider", "dir", "--storage-bucket", dir, "-o", "json")
	var findings []struct{ Check, Result, Meaning string }
	if err := json.Unmarshal([]byte(out), &findings); err != nil || code != 0 || len(findings) < 10 || findings[0].Result != "ok" {
		t.Errorf("exit %d, %v\n%s%s", code, err, out, errOut)
	}
	if code, _, errOut = checkStorage(nil); code != cli.ExitUsage || !strings.Contains(errOut, "--storage-bucket") {
		t.Errorf("without a bucket: exit %d, %s", code, errOut)
	}
}

// TestStorageCheckOfARefusal holds that a definite refusal ends the command at once,
// with the store's words, bucket and key.
func TestStorageCheckOfARefusal(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code></Error>"))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>not for you</Message></Error>"))
	}))
	defer refusing.Close()
	env := map[string]string{"AWS_ENDPOINT_URL": refusing.URL, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	code, out, errOut := checkStorage(env, "--storage-bucket", "bucket")
	if code != cli.ExitFailed || !strings.Contains(out, "not checked") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	for _, want := range []string{`bucket "bucket"`, "403 AccessDenied: not for you", "put probe/"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%q does not say %q", errOut, want)
		}
	}
}

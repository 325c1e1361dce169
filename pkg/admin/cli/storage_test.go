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

// checkStorage runs storage check with an environment.
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

// TestStorageCheckRefused: a definite refusal ends the command at once, with the store's
// message, the bucket and the key.
func TestStorageCheckRefused(t *testing.T) {
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
			t.Errorf("stderr %q, want %q in it", errOut, want)
		}
	}
}

// TestInsecureStorage: plain HTTP to a remote store is refused before any request is sent,
// unless the flag or the environment allows it, by the cluster's commands too.
func TestInsecureStorage(t *testing.T) {
	env := map[string]string{
		// An address without a listener that is not loopback.
		"AWS_ENDPOINT_URL": "http://0.0.0.0:1", "AWS_S3_USE_PATH_STYLE": "true", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
		"NSTANCE_ENCRYPTION_KEY": encryptionKey,
	}
	commands := map[string][]string{"storage check": {"storage", "check"}, "cluster nonce": {"cluster", "nonce"}}
	for name, args := range commands {
		args = append(args, "--storage-bucket", "bucket")
		run(t, env, args...).want(t, 1, `"http://0.0.0.0:1", plain HTTP to a remote host`, "NSTANCE_INSECURE_STORAGE=true")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the allowed command would retry requests to the store for long
		var errOut bytes.Buffer
		cli.Run(ctx, cli.Env{
			Args: append(args, "--insecure-storage"), Getenv: func(k string) string { return env[k] },
			Stdout: &bytes.Buffer{}, Stderr: &errOut, Now: time.Now, Random: rand.Reader,
		})
		if strings.Contains(errOut.String(), "plain HTTP") || errOut.Len() == 0 {
			t.Errorf("%s with the flag: %s", name, errOut.String())
		}
	}
}

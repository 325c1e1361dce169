package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/awsclient"
)

// serveAWS serves AWS services that record the signers of requests, and refuse all.
func serveAWS(t *testing.T) (url string, signed *[]string) {
	t.Helper()
	signed = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		scope, _, _ = strings.Cut(scope, ",")
		if parts := strings.Split(scope, "/"); len(parts) == 5 {
			*signed = append(*signed, parts[0]+" "+parts[2]+" "+parts[3])
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	return server.URL, signed
}

// profileFunc returns the config of a profile; code asks for an MFA code.
type profileFunc func(code func(string) (string, error)) (awsclient.Config, error)

// runWithProfile runs a command with a profile, on a terminal with these answers; nil: without
// a terminal.
func runWithProfile(t *testing.T, profile profileFunc, answers io.Reader, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Args: args, Getenv: func(string) string { return "" }, Stdin: answers, Terminal: answers != nil, Stdout: &out, Stderr: &errOut,
		Profile: func(_ context.Context, code func(string) (string, error)) (awsclient.Config, error) {
			return profile(code)
		},
		Now: time.Now, Random: rand.Reader,
	})
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// TestProfile: a profile applies to the bucket and to all other services of AWS, and is not
// loaded if AWS is not used.
func TestProfile(t *testing.T) {
	url, signed := serveAWS(t)
	loads := 0
	load := func(func(string) (string, error)) (awsclient.Config, error) {
		loads++
		return awsclient.Config{
			Credentials: awsclient.Keep(func(context.Context) (awsclient.Keys, error) {
				return awsclient.Keys{AccessKeyID: "ASIAPROFILE", SecretAccessKey: "s"}, nil
			}),
			Getenv: func(name string) string {
				return map[string]string{"AWS_REGION": "eu-west-3", "AWS_ENDPOINT_URL": url}[name]
			},
		}, nil
	}
	secrets := []string{
		"cluster", "nonce", "--storage-provider", "dir", "--storage-bucket", t.TempDir(), "--secrets-provider", "aws-secrets-manager",
		"--cluster-id", "c",
	}
	for _, c := range []struct {
		args []string
		want string // key ID, region and service of the signature
	}{
		{[]string{"storage", "check", "--storage-bucket", "bucket"}, "ASIAPROFILE eu-west-3 s3"},
		{secrets, "ASIAPROFILE eu-west-3 secretsmanager"},
		{append(secrets, "--secrets-region", "eu-north-1"), "ASIAPROFILE eu-north-1 secretsmanager"},
	} {
		*signed = nil
		r := runWithProfile(t, load, nil, c.args...)
		if len(*signed) == 0 || (*signed)[0] != c.want || r.code != cli.ExitFailed {
			t.Errorf("%v: signed %v, want %s; exit %d: %s", c.args, *signed, c.want, r.code, r.errOut)
		}
	}
	loads = 0
	r := runWithProfile(t, load, nil, "storage", "check", "--storage-provider", "dir", "--storage-bucket", t.TempDir())
	if r.code != cli.ExitOK || loads != 0 {
		t.Errorf("a directory: exit %d, loaded %d times: %s", r.code, loads, r.errOut)
	}
}

// TestMFACode: a role may require an MFA code, which is asked for only on a terminal.
func TestMFACode(t *testing.T) {
	const device = "arn:aws:iam::123456789012:mfa/alice"
	load := func(code func(string) (string, error)) (awsclient.Config, error) {
		typed, err := code(device)
		if err != nil {
			return awsclient.Config{}, err
		}
		return awsclient.Config{}, errors.New("the code was " + typed)
	}
	check := []string{"storage", "check", "--storage-bucket", "bucket"}
	runWithProfile(t, load, strings.NewReader("123456\n"), check...).want(t, cli.ExitFailed, "MFA code of "+device+": ", "the code was 123456")
	runWithProfile(t, load, strings.NewReader("\n"), check...).want(t, cli.ExitFailed, "no MFA code of "+device)
	runWithProfile(t, load, nil, check...).want(t, cli.ExitFailed, "MFA code of "+device+" required, but standard input is not a terminal")
	silent, _ := io.Pipe()
	runWithProfile(t, load, silent, append(check, "--timeout", "300ms")...).want(t, cli.ExitFailed, "no answer within --timeout")
}

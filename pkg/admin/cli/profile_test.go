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

// aws is a service that notes who signed what for it, and refuses all.
func aws(t *testing.T) (url string, signed *[]string) {
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

// of is how AWS is called, as far as a code is not wanted.
type of func(code func(string) (string, error)) (awsclient.Config, error)

// byProfile runs a command in the name of a person, on a terminal on which answers are typed;
// nil: on none.
func byProfile(t *testing.T, profile of, answers io.Reader, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Args: args, Getenv: func(string) string { return "" }, Stdin: answers, Terminal: answers != nil, Stdout: &out, Stderr: &errOut,
		Profile: func(_ context.Context, code func(string) (string, error)) (awsclient.Config, error) {
			return profile(code)
		},
		Now: time.Now, Random: rand.Reader,
	})
	return result{code, out.String(), errOut.String()}
}

// TestProfile: what a profile says counts for the bucket and for all else at AWS, and is not
// asked for where AWS is not called.
func TestProfile(t *testing.T) {
	url, signed := aws(t)
	asked := 0
	person := func(func(string) (string, error)) (awsclient.Config, error) {
		asked++
		return awsclient.Config{
			Credentials: awsclient.Keep(func(context.Context) (awsclient.Keys, error) {
				return awsclient.Keys{AccessKeyID: "ASIAPERSON", SecretAccessKey: "s"}, nil
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
		want string // who signed what
	}{
		{[]string{"storage", "check", "--storage-bucket", "bucket"}, "ASIAPERSON eu-west-3 s3"},
		{secrets, "ASIAPERSON eu-west-3 secretsmanager"},
		{append(secrets, "--secrets-region", "eu-north-1"), "ASIAPERSON eu-north-1 secretsmanager"},
	} {
		*signed = nil
		r := byProfile(t, person, nil, c.args...)
		if len(*signed) == 0 || (*signed)[0] != c.want || r.code != cli.ExitFailed {
			t.Errorf("%v: signed %v, want %s; exit %d: %s", c.args, *signed, c.want, r.code, r.errOut)
		}
	}
	asked = 0
	r := byProfile(t, person, nil, "storage", "check", "--storage-provider", "dir", "--storage-bucket", t.TempDir())
	if r.code != cli.ExitOK || asked != 0 {
		t.Errorf("a directory: exit %d, asked %d times: %s", r.code, asked, r.errOut)
	}
}

// TestCode: a role may want a code, which is asked for on a terminal alone.
func TestCode(t *testing.T) {
	const device = "arn:aws:iam::123456789012:mfa/alice"
	person := func(code func(string) (string, error)) (awsclient.Config, error) {
		typed, err := code(device)
		if err != nil {
			return awsclient.Config{}, err
		}
		return awsclient.Config{}, errors.New("the code was " + typed)
	}
	check := []string{"storage", "check", "--storage-bucket", "bucket"}
	byProfile(t, person, strings.NewReader("123456\n"), check...).want(t, cli.ExitFailed, "Code of "+device+": ", "the code was 123456")
	byProfile(t, person, strings.NewReader("\n"), check...).want(t, cli.ExitFailed, "no code of "+device)
	byProfile(t, person, nil, check...).want(t, cli.ExitFailed, "the code of "+device+" is wanted, and standard input is no terminal")
	silent, _ := io.Pipe()
	byProfile(t, person, silent, append(check, "--timeout", "300ms")...).want(t, cli.ExitFailed, "no answer within --timeout")
}

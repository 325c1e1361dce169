package s3_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/sigv4"
)

// The keys of these tests' stores.
const keyID, secretKey = "test-key", "test-secret"

func config(root string) s3.Config {
	return s3.Config{Root: root, Bucket: "dev", Keys: s3.Key(keyID, secretKey, "")}
}

// signing signs requests like AWS's SDK, with replaceable keys.
type signing struct {
	keys    sdk.Credentials
	service string
	at      func() time.Time
}

func client() *http.Client { return &http.Client{Transport: signs()} }

func signs() signing {
	return signing{sdk.Credentials{AccessKeyID: keyID, SecretAccessKey: secretKey}, "s3", time.Now}
}

// RoundTrip implements http.RoundTripper.
func (s signing) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := s.sign(r); err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r)
}

// sign signs a request with the hash in its header, or else the hash of its body.
func (s signing) sign(r *http.Request) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if r.Header.Get(sigv4.SumHeader) == "" {
		r.Header.Set(sigv4.SumHeader, sigv4.Sum(body))
	}
	return v4.NewSigner().SignHTTP(r.Context(), s.keys, r, r.Header.Get(sigv4.SumHeader), s.service, "us-east-1", s.at(),
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

// expect fails unless a request gets this status and this S3 error code.
func expect(t *testing.T, what string, c *http.Client, r *http.Request, status int, code string) {
	t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status || !bytes.Contains(body, []byte(code)) {
		t.Errorf("%s: %d %s, %v; want %d %s", what, answer.StatusCode, body, err, status, code)
	}
	for name := range answer.Header {
		if len(name) > 15 && name[:15] == "Access-Control-" {
			t.Errorf("%s: answered with %s", what, name)
		}
	}
}

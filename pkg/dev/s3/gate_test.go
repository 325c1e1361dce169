package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/sigv4"
)

// request returns an unsigned request to the store.
func (f *front) request(method, path, body string) *http.Request {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// TestWebPages: a web page can neither read nor write, whatever its browser sends, even with the
// keys.
func TestWebPages(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "kept")
	for what, c := range map[string]struct {
		method, host, header, value string
		status                      int
	}{
		"another site":     {"PUT", "", "Origin", "https://evil.example", 403},
		"a sandboxed page": {"PUT", "", "Origin", "null", 403},
		"a link":           {"GET", "", "Sec-Fetch-Site", "cross-site", 403},
		"a rebound name":   {"PUT", "rebound.example:8989", "", "", 421},
		"and its origin":   {"GET", "rebound.example:8989", "Origin", "http://rebound.example:8989", 421},
		"asking first":     {"OPTIONS", "", "Access-Control-Request-Method", "PUT", 403},
	} {
		for _, signed := range []bool{false, true} {
			r := f.request(c.method, "/dev/k", "x")
			if r.Host = c.host; c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			if c.method == "OPTIONS" {
				r.Header.Set("Origin", "https://evil.example")
			}
			by := http.DefaultClient
			if signed {
				by = client()
			}
			expect(t, what, by, r, c.status, "")
		}
	}
	if _, got := f.want(200, "GET", "/dev/k", ""); got != "kept" {
		t.Errorf("the object is %q", got)
	}
	// No reply allows other sites to read it.
	expect(t, "a program", client(), f.request("GET", "/dev/k", ""), 200, "kept")
	r := f.request("GET", s3.RequestsPath, "")
	r.Host = "rebound.example"
	expect(t, "the counts", http.DefaultClient, r, 421, "")
}

// TestForms: a form's upload needs no CORS preflight, so it needs a signature in its headers; those
// in its fields don't count.
func TestForms(t *testing.T) {
	f := start(t, t.TempDir())
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for name, value := range map[string]string{"key": "k", "x-amz-signature": strings.Repeat("a", 64), "x-amz-algorithm": "AWS4-HMAC-SHA256"} {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("file", "f")
	if err == nil {
		_, err = io.WriteString(part, "x")
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	r := f.request("POST", "/dev", form.String())
	r.Header.Set("Content-Type", w.FormDataContentType())
	expect(t, "a form", http.DefaultClient, r, 403, "AccessDenied")
	f.want(404, "GET", "/dev/k", "")
}

// TestSignatures: only unmodified requests that are signed with the keys are accepted.
func TestSignatures(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "kept")
	with := func(change func(*signing)) *http.Client {
		s := signs()
		change(&s)
		return &http.Client{Transport: s}
	}
	for what, c := range map[string]struct {
		by   *http.Client
		code string
	}{
		"no signature":   {http.DefaultClient, "AccessDenied"},
		"another key":    {with(func(s *signing) { s.keys.AccessKeyID = "dev" }), "InvalidAccessKeyId"},
		"another secret": {with(func(s *signing) { s.keys.SecretAccessKey = "dev" }), "SignatureDoesNotMatch"},
		"a token":        {with(func(s *signing) { s.keys.SessionToken = "t" }), "InvalidAccessKeyId"},
		"another use":    {with(func(s *signing) { s.service = "ec2" }), "AccessDenied"},
		"too old":        {with(func(s *signing) { s.at = func() time.Time { return time.Now().Add(-time.Hour) } }), "RequestTimeTooSkewed"},
		"too new":        {with(func(s *signing) { s.at = func() time.Time { return time.Now().Add(time.Hour) } }), "RequestTimeTooSkewed"},
	} {
		for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
			expect(t, what, c.by, f.request(method, "/dev/k", "x"), 403, c.code)
		}
		query := "/dev?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + strings.Repeat("a", 64)
		for _, path := range []string{"/", "/dev?list-type=2", query} {
			expect(t, what, c.by, f.request("GET", path, ""), 403, c.code)
		}
	}
	r := f.request("PUT", "/dev/k", "x")
	r.Header.Set(sigv4.SumHeader, sigv4.Sum([]byte("y")))
	expect(t, "another body", client(), r, 400, "XAmzContentSHA256Mismatch")
	r = f.request("PUT", "/dev/k", "0;chunk-signature="+strings.Repeat("a", 64)+"\r\n\r\n")
	r.Header.Set(sigv4.SumHeader, sigv4.Chunked)
	r.Header.Set("X-Amz-Decoded-Content-Length", "0")
	expect(t, "another chunk", client(), r, 403, "SignatureDoesNotMatch")
	if _, got := f.want(200, "GET", "/dev/k", ""); got != "kept" {
		t.Errorf("the object is %q", got)
	}
}

// TestUnsaid: a short body needs no hash in the headers, but is signed too.
func TestUnsaid(t *testing.T) {
	f := start(t, t.TempDir())
	send := func(signed, sent string) *http.Response {
		t.Helper()
		r := f.request("PUT", "/dev/k", sent)
		keys := sdk.Credentials{AccessKeyID: keyID, SecretAccessKey: secretKey}
		if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, sigv4.Sum([]byte(signed)), "s3", "us-east-1", time.Now()); err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	long := strings.Repeat("x", 1<<20+1)
	if a, b, c := send("one", "one"), send("one", "two"), send(long, long); a.StatusCode != http.StatusOK ||
		b.StatusCode != http.StatusForbidden || c.StatusCode != http.StatusBadRequest {
		t.Errorf("as signed %d, another %d, a long one %d; want 200, 403, 400", a.StatusCode, b.StatusCode, c.StatusCode)
	}
	if _, got := f.want(200, "GET", "/dev/k", ""); got != "one" {
		t.Errorf("the object is %.20q", got)
	}
}

// TestChunkedBodies: a body in signed chunks is stored without its framing.
func TestChunkedBodies(t *testing.T) {
	f := start(t, t.TempDir())
	c, err := minio.New(strings.TrimPrefix(f.url, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(keyID, secretKey, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "short", strings.Repeat("long", 50_000)} {
		_, err := c.PutObject(t.Context(), "dev", "a key+=", strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(f.root, "a key+=")); err != nil || string(got) != content {
			t.Errorf("%d bytes, want %d: %v", len(got), len(content), err)
		}
	}
}

// TestOwnersOnly: the files, which include secrets, can only be read by their owner.
func TestOwnersOnly(t *testing.T) {
	f := start(t, filepath.Join(t.TempDir(), "root"))
	f.want(200, "PUT", "/dev/cluster/secret/ca.key", "sealed")
	for _, name := range []string{"", "cluster", "cluster/secret", "cluster/secret/ca.key"} {
		if info, err := os.Stat(filepath.Join(f.root, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestNetwork: an address that other machines can reach needs the flag.
func TestNetwork(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0"} {
		if err := s3.Run(t.Context(), addr, config(t.TempDir())); err == nil || !strings.Contains(err.Error(), "--serve-network") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := config(t.TempDir())
	cfg.Network = true
	if err := s3.Run(ctx, "0.0.0.0:0", cfg); err != nil {
		t.Error(err)
	}
}

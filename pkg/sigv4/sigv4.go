// Package sigv4 verifies requests signed with AWS Signature Version 4:
// docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
//
// It is stateless. The caller supplies the keys and bounds the clock skew; a request is
// untrusted until Check has passed. Only signatures in the Authorization header are accepted:
// with query signatures each request would be a link that a web page can make a browser follow.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	timeForm  = "20060102T150405Z"

	dateHeader  = "X-Amz-Date"
	tokenHeader = "X-Amz-Security-Token" //nolint:gosec // its name
	// SumHeader carries the body's SHA-256 as S3 clients sign it: hexadecimal, Unsigned or
	// Chunked.
	SumHeader = "X-Amz-Content-Sha256"
)

// authorization matches the header: key, date, region, service, headers, signature.
var authorization = regexp.MustCompile(`^` + algorithm + ` Credential=([^/,\s]{1,128})/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?` +
	`SignedHeaders=([a-z0-9;_.-]+), ?Signature=([0-9a-f]{64})$`)

// ErrUnsigned means that a request has no signature.
var ErrUnsigned = errors.New("the request is not signed")

// Signature is the parsed signature of a request.
type Signature struct {
	KeyID, Region, Service string
	Token                  string // session token of temporary keys; empty: none
	At                     time.Time

	headers []string
	text    string // in hexadecimal
}

// Parse parses the signature of a request and checks that host and all AWS headers are signed,
// nothing else. It returns ErrUnsigned for an unsigned request; with other errors it also
// returns the part that was parsed.
func Parse(r *http.Request) (Signature, error) {
	texts := r.Header.Values("Authorization")
	if len(texts) == 0 {
		return Signature{}, ErrUnsigned
	}
	m := authorization.FindStringSubmatch(texts[0])
	if m == nil || len(texts) > 1 {
		return Signature{}, errors.New("want one Authorization header with a Signature Version 4")
	}
	s := Signature{
		KeyID: m[1], Region: m[3], Service: m[4], Token: r.Header.Get(tokenHeader), headers: strings.Split(m[5], ";"), text: m[6],
	}
	if missing := s.unsigned(r.Header); missing != "" {
		return s, fmt.Errorf("the header %s is not signed", missing)
	}
	var err error
	s.At, err = time.Parse(timeForm, r.Header.Get(dateHeader))
	if err != nil || s.At.Format("20060102") != m[2] {
		return s, fmt.Errorf("the date of the signature and %s differ", dateHeader)
	}
	return s, nil
}

// unsigned returns a header that must be signed but is not; empty if all are.
func (s Signature) unsigned(h http.Header) string {
	if !slices.Contains(s.headers, "host") {
		return "host"
	}
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") && !slices.Contains(s.headers, lower) {
			return lower
		}
	}
	return ""
}

// Check reports whether the request is signed with a secret key. sum is the body's hash in the
// signature: its SHA-256 in hexadecimal, or the value of SumHeader.
func (s Signature) Check(r *http.Request, secret, sum string) bool {
	// S3 paths are escaped once, by some clients with fewer escapes than AWS specifies; those
	// of all other services are escaped twice.
	paths := []string{escapePath(r.URL.EscapedPath())}
	if s.Service == "s3" {
		paths = []string{escapePath(r.URL.Path), r.URL.EscapedPath()}
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		request, ok := s.canonical(r, path, sum)
		return ok && hmac.Equal([]byte(s.sign(secret, algorithm, Sum([]byte(request)))), []byte(s.text))
	})
}

// Sum returns the SHA-256 of a body in hexadecimal.
func Sum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// canonical returns the canonical request; ok is false if its query can't be parsed.
func (s Signature) canonical(r *http.Request, path, sum string) (text string, ok bool) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", false
	}
	for _, values := range query {
		slices.Sort(values)
	}
	var headers strings.Builder
	for _, name := range s.headers {
		values := r.Header.Values(name)
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
		trimmed := make([]string, len(values))
		for n, v := range values {
			trimmed[n] = strings.Join(strings.Fields(v), " ")
		}
		fmt.Fprintf(&headers, "%s:%s\n", name, strings.Join(trimmed, ","))
	}
	return strings.Join([]string{
		r.Method, path, strings.ReplaceAll(query.Encode(), "+", "%20"), headers.String(), strings.Join(s.headers, ";"), sum,
	}, "\n"), true
}

// escapePath escapes everything except slashes and the unreserved characters of RFC 3986.
func escapePath(path string) string {
	if path == "" {
		return "/"
	}
	var b strings.Builder
	for _, c := range []byte(path) {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.IndexByte("-_.~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// sign signs lines of text with a secret key, for the signature's time and scope.
func (s Signature) sign(secret, kind string, lines ...string) string {
	scope := []string{s.At.Format("20060102"), s.Region, s.Service, "aws4_request"}
	text := strings.Join(append([]string{kind, s.At.Format(timeForm), strings.Join(scope, "/")}, lines...), "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(scope, text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

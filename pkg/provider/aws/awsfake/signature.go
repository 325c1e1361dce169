package awsfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file is Signature Version 4:
// docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

const algorithm = "AWS4-HMAC-SHA256"

// authorization is the header of it: key, date, region, service, headers, signature.
var authorization = regexp.MustCompile(`^` + algorithm + ` Credential=([A-Za-z0-9]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?` +
	`SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$`)

const (
	// maxSkew is how far a caller's clock may be off.
	maxSkew    = 5 * time.Minute
	signedForm = "20060102T150405Z"

	dateHeader    = "X-Amz-Date"
	sessionHeader = "X-Amz-Security-Token"
)

// role are keys that a metadata service has handed out.
type role struct {
	secret, token string
	end           time.Time
}

// authenticate checks a signature, and what it is for. Which keys there are it knows of
// its own role, and of Config.Keys; others sign as they like. The caller holds the lock.
func (c *Cloud) authenticate(s service, r *http.Request, body []byte) error {
	text := r.Header.Get("Authorization")
	if text == "" {
		return &Error{Code: s.unsigned, Status: http.StatusForbidden, Message: "Request is missing Authentication Token"}
	}
	m := authorization.FindStringSubmatch(text)
	if m == nil {
		return s.refuses("no Signature Version 4")
	}
	if m[3] != c.cfg.Region || m[4] != s.name {
		return s.refuses("signed for %.40s in %.40s, want a service of %s", m[4], m[3], c.cfg.Region)
	}
	if missing := unsigned(r.Header, strings.Split(m[5], ";")); missing != "" {
		return s.refuses("the header %s is not signed", missing)
	}
	at, err := time.Parse(signedForm, r.Header.Get(dateHeader))
	if err != nil || at.Format("20060102") != m[2] {
		return s.refuses("the date and the signature's don't agree")
	}
	if skew := c.cfg.Now().Sub(at).Abs(); skew > maxSkew {
		return bad(s.expired, "Request has expired.")
	}
	return recognize(c, s, m, r, body)
}

// recognize checks with which keys a request is signed. m is what authorization found. The caller holds
// the lock.
func recognize(c *Cloud, s service, m []string, r *http.Request, body []byte) error {
	secret, known := c.cfg.Keys[m[1]]
	token := r.Header.Get(sessionHeader)
	if temporary, ok := c.roles[m[1]]; ok {
		if token != temporary.token {
			return s.refuses("the security token is not that of the key")
		}
		if !c.cfg.Now().Before(temporary.end) {
			return bad(s.ended, "The security token included in the request is expired")
		}
		secret, known = temporary.secret, true
	}
	switch {
	case token == "" && strings.HasPrefix(m[1], "ASIA"):
		return s.refuses("a temporary key without a security token")
	case known && !hmac.Equal([]byte(signature(secret, m, r, body)), []byte(m[6])):
		return s.refuses("the request signature we calculated does not match the signature you provided")
	}
	return nil
}

// refuses is how a service refuses a signature.
func (s service) refuses(format string, args ...any) error {
	return &Error{Code: s.denied, Status: s.deniedStatus,
		Message: "AWS was not able to validate the provided access credentials: " + fmt.Sprintf(format, args...)}
}

// unsigned returns a header that has to be signed and is not; empty: all are.
func unsigned(h http.Header, signed []string) string {
	if !slices.Contains(signed, "host") {
		return "host"
	}
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") && !slices.Contains(signed, lower) {
			return lower
		}
	}
	return ""
}

// signature is what a request is to be signed with. m is what authorization found.
func signature(secret string, m []string, r *http.Request, body []byte) string {
	var headers strings.Builder
	for name := range strings.SplitSeq(m[5], ";") {
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
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	request := strings.Join([]string{r.Method, path, query, headers.String(), m[5], digest(body)}, "\n")
	scope := strings.Join([]string{m[2], m[3], m[4], "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, r.Header.Get(dateHeader), scope, digest([]byte(request))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{m[2], m[3], m[4], "aws4_request", text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

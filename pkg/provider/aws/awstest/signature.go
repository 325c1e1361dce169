package awstest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/sigv4"
)

// maxSkew is how far a client's clock may be off.
const maxSkew = 5 * time.Minute

// role is a set of credentials that a metadata service has returned.
type role struct {
	secret, token string
	end           time.Time
}

// authenticate checks a request's signature, region and service. The caller holds the lock.
func (c *Cloud) authenticate(s service, r *http.Request, body []byte) error {
	signed, err := sigv4.Parse(r)
	switch {
	case errors.Is(err, sigv4.ErrUnsigned):
		return &Error{Code: s.unsigned, Status: http.StatusForbidden, Message: "Request is missing Authentication Token"}
	case err != nil:
		return s.badSignature("%v", err)
	case signed.Region != c.cfg.Region || signed.Service != s.name:
		return s.badSignature("signed for %.40s in %.40s, want a service of %s", signed.Service, signed.Region, c.cfg.Region)
	case c.cfg.Now().Sub(signed.At).Abs() > maxSkew:
		return bad(s.expired, "Request has expired.")
	}
	return checkKey(c, s, signed, r, body)
}

// checkKey checks the key and the signature: those of the role, and those of Config.Keys.
// Signatures with other keys pass, unless Config.KnownKeys is set. The caller holds the lock.
func checkKey(c *Cloud, s service, signed sigv4.Signature, r *http.Request, body []byte) error {
	secret, known := c.cfg.Keys[signed.KeyID]
	if temporary, ok := c.roles[signed.KeyID]; ok {
		if signed.Token != temporary.token {
			return s.badSignature("the security token is not that of the key")
		}
		if !c.cfg.Now().Before(temporary.end) {
			return bad(s.expiredToken, "The security token included in the request is expired")
		}
		secret, known = temporary.secret, true
	}
	switch {
	case signed.Token == "" && strings.HasPrefix(signed.KeyID, "ASIA"):
		return s.badSignature("a temporary key without a security token")
	case !known && c.cfg.KnownKeys:
		return s.badSignature("there is no access key %.40q", signed.KeyID)
	case known && !signed.Check(r, secret, sigv4.Sum(body)):
		return s.badSignature("the request signature we calculated does not match the signature you provided")
	}
	return nil
}

// Secret returns the secret key of an access key: one of Config.Keys, without a token, or one that
// a metadata service has returned, with its token, until it expires.
func (r *IAM) Secret(keyID, token string) (secret string, known bool) {
	c := r.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	if temporary, ok := c.roles[keyID]; ok {
		return temporary.secret, token == temporary.token && c.cfg.Now().Before(temporary.end)
	}
	secret, known = c.cfg.Keys[keyID]
	return secret, known && token == ""
}

// badSignature returns the service's error for a wrong signature.
func (s service) badSignature(format string, args ...any) error {
	return &Error{Code: s.signatureCode, Status: s.signatureStatus,
		Message: "AWS was not able to validate the provided access credentials: " + fmt.Sprintf(format, args...)}
}

// Package awscall calls services of AWS of which a handful of calls are needed: their
// clients in the SDK link 2.6 MB for eight calls, since each brings its own endpoints
// and its own middleware. What is hard, Signature Version 4, is the SDK's here as well.
//
// Two protocols are spoken: the query protocol (a form, answered in XML) and JSON 1.1
// (a header names the action), both as the services' API references describe them:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/making-api-requests.html,
// https://smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html.
package awscall

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/retry"
)

// maxReply is how much of a reply is read, in bytes: thousands of targets, or a secret.
const maxReply = 8 << 20

// Client calls one service of one region. It is safe for concurrent use.
type Client struct {
	session awsclient.Session
	service string // what signatures are for
	url     string
	signer  *v4.Signer
}

// New returns a client of a service. It sends nothing. An error says that it is not known
// where the service is.
func New(s awsclient.Session, of awsclient.Service) (*Client, error) {
	url, err := s.URL(of)
	if err != nil {
		return nil, err
	}
	return &Client{session: s, service: of.Name(), url: url + "/", signer: v4.NewSigner()}, nil
}

// Attempts says how often a call may be made. Each attempt ends 10 s after
// it was sent.
type Attempts struct {
	// Once is for what changes something: a lost reply can't tell what it did, and the
	// caller has to look.
	Once bool
	// Permit is asked before each attempt, when it is signed and ready; an error ends the
	// call, and awsclient.Refused finds it. nil: all are permitted.
	Permit func(ctx context.Context) error
}

// attemptTime is how long one attempt may take, from the moment it is sent to the end of
// its reply, and signTime the search for credentials before it: what never comes would
// hold a caller as long as the caller lives.
const (
	attemptTime = 10 * time.Second
	signTime    = 10 * time.Second
)

// Reads are repeated a few times when the service does not answer, or has too much to
// do, with waits that double.
const (
	readAttempts = 4
	firstWait    = 200 * time.Millisecond
	longestWait  = 5 * time.Second
)

// message is a call on its way.
type message struct {
	action string
	header http.Header
	body   []byte
}

// send makes a call, and returns the body of the reply. Whether it is worth another
// attempt is decided by temporary.
func (c *Client) send(ctx context.Context, m message, refusal func(status int, body []byte) *Error, how Attempts) ([]byte, error) {
	backoff := retry.Backoff{First: firstWait, Limit: longestWait}
	for n := 1; ; n++ {
		body, err := c.attempt(ctx, m, refusal, how.Permit)
		if err == nil || how.Once || n == readAttempts || !temporary(err) {
			return body, err
		}
		if retry.Wait(ctx, backoff.Delay(n)) != nil {
			return nil, err
		}
	}
}

// unsent marks what happened before anything was on its way.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

func (c *Client) attempt(
	ctx context.Context, m message, refusal func(int, []byte) *Error, permit func(context.Context) error,
) ([]byte, error) {
	r, id, err := c.signed(ctx, m)
	if err != nil {
		return nil, unsent{err}
	}
	if permit != nil {
		if err := awsclient.Ask(ctx, permit); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	reply, err := c.session.HTTPClient.Do(r.WithContext(limited))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.action, err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: read the reply: %w", m.action, err)
	case len(body) > maxReply:
		return nil, fmt.Errorf("%s: the reply is longer than %d bytes", m.action, maxReply)
	case reply.StatusCode != http.StatusOK:
		e := refusal(reply.StatusCode, body)
		e.Action, e.Status = m.action, reply.StatusCode
		if awsclient.Expired(e) {
			c.session.Forget(id) // the same ones would be refused again
		}
		return nil, e
	}
	return body, nil
}

// signed returns the request, and by which id the keys are that it is signed with.
func (c *Client) signed(ctx context.Context, m message) (r *http.Request, id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	r, err = http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(m.body))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", m.action, err)
	}
	r.Header = m.header.Clone()
	keys, err := c.session.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%s: find credentials: %w", m.action, err)
	}
	digest := sha256.Sum256(m.body)
	if err := c.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(digest[:]), c.service, c.session.Region, time.Now()); err != nil {
		return nil, "", fmt.Errorf("%s: sign: %w", m.action, err)
	}
	return r, keys.AccessKeyID, nil
}

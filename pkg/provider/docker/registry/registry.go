// Package registry answers what a create needs to know before the engine pulls an image: its
// digest, and whether a key has signed it. It speaks the OCI distribution protocol, uses the
// passwords of `docker login`, and trusts nothing a registry returns: sizes are bounded, and
// contents are verified by digest or signature.
//
// Errors are of the kinds of package provider; others are temporary.
package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/nstance/nstance/pkg/provider"
)

// Client queries registries. It is safe for concurrent use and caches nothing.
type Client struct {
	keychain  authn.Keychain
	transport http.RoundTripper
	lists     http.RoundTripper // for lists of referrers
}

// New returns a client with the passwords of a docker config.json and its credential helpers;
// an empty path is the file of the user running this process. The file is read for each
// request, so a `docker login` takes effect at once.
func New(configFile string) *Client {
	c := &Client{
		keychain: patient{authn.DefaultKeychain}, transport: bounded{remote.DefaultTransport, maxAnswer},
		lists: bounded{remote.DefaultTransport, maxList},
	}
	if configFile != "" {
		c.keychain = patient{keychain(configFile)}
	}
	return c
}

// Hosted reports whether an image name includes a registry. A bare name, such as
// nstance-agent:dev, is always the engine's own image: commonly it is short for an image on
// Docker Hub, where any account may have taken the name.
func Hosted(image string) bool {
	host, _, found := strings.Cut(image, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// Check returns, without a request, an error if no registry can be asked for an image.
func Check(image string) error {
	if !Hosted(image) {
		return errors.New("has no registry: want a registry in front, such as docker.io/" + image)
	}
	_, err := parse(image)
	return err
}

// parse parses an image name. It exists because the library's own function gives no reason for
// an error.
func parse(image string) (name.Reference, error) {
	if strings.Contains(image, "@") {
		return name.NewDigest(image)
	}
	return name.NewTag(image)
}

// Resolve returns an image's name by digest, as repository@sha256:…. A name that has a digest
// needs no request.
func (c *Client) Resolve(ctx context.Context, image string) (string, error) {
	err := Check(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	ref, err := parse(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	if d, ok := ref.(name.Digest); ok {
		return d.Context().Digest(d.DigestStr()).Name(), nil
	}
	digest, err := c.digest(ctx, ref)
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	if err != nil {
		return "", fmt.Errorf("ask the registry for image %s: %w", image, kind(err))
	}
	return ref.Context().Digest(digest).Name(), nil
}

// digest gets the digest without reading the manifest, which some registries count as a pull;
// if the registry does not return it that way, the manifest is read.
func (c *Client) digest(ctx context.Context, ref name.Reference) (string, error) {
	options := c.options(ctx)
	head, err := remote.Head(ref, options...)
	if err == nil {
		return head.Digest.String(), nil
	}
	if ctx.Err() != nil || status(err) != 0 {
		return "", err
	}
	got, err := remote.Get(ref, options...)
	if err != nil {
		return "", err
	}
	return got.Digest.String(), nil
}

// options returns the options of all requests. Each is attempted once: the caller retries.
func (c *Client) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(c.keychain), remote.WithTransport(c.transport),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
	}
}

// Login returns the value of the X-Registry-Auth header with which an engine can pull an image
// with the same password.
func (c *Client) Login(ctx context.Context, image string) (string, error) {
	ref, err := parse(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	authenticator, err := authn.Resolve(ctx, c.keychain, ref.Context())
	if err != nil {
		return "", fmt.Errorf("find the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	login, err := authn.Authorization(ctx, authenticator)
	if err != nil {
		return "", fmt.Errorf("find the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	text, err := json.Marshal(map[string]string{
		"username": login.Username, "password": login.Password, "auth": login.Auth,
		"identitytoken": login.IdentityToken, "registrytoken": login.RegistryToken, "serveraddress": ref.Context().RegistryStr(),
	})
	if err != nil {
		return "", fmt.Errorf("encode the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	return base64.URLEncoding.EncodeToString(text), nil
}

// status returns the HTTP status of a registry's answer, 0 if there was none.
func status(err error) int {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// brief is an error with truncated text: registries, and the hosts they redirect to, may return
// any text.
type brief struct{ error }

const maxTold = 300

// Error implements error.
func (b brief) Error() string {
	text := b.error.Error()
	if len(text) > maxTold {
		return text[:maxTold] + "…"
	}
	return text
}

// Unwrap returns the full error.
func (b brief) Unwrap() error { return b.error }

// kind wraps a registry's answer in its kind. A rate limit is ErrQuota, as it affects one
// image; ErrThrottled would slow down all calls of the provider.
func kind(err error) error {
	if err != nil {
		err = brief{err}
	}
	switch status(err) {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	default:
		return err
	}
}

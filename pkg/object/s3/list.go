package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/nstance/nstance/pkg/object"
)

// tokenDelimiter separates the two parts of a token. Keys have no control characters.
const tokenDelimiter = "\n"

// List implements object.Store. A token is the last key of the previous page and the store's own
// continuation token. Both are sent: either one suffices for a store that honours it.
func (s *Store) List(ctx context.Context, prefix, token string) (object.Page, error) {
	if strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' }) {
		return object.Page{}, nil // no key has control characters
	}
	after, continuation, _ := strings.Cut(token, tokenDelimiter)
	var page object.Page
	err := s.read(ctx, func(ctx context.Context) (err error) {
		page, err = s.list(ctx, prefix, after, continuation)
		return err
	})
	if err != nil {
		return object.Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, after, continuation string) (object.Page, error) {
	if err := s.ready(ctx); err != nil {
		return object.Page{}, err
	}
	client, err := s.within(ctx)
	if err != nil {
		return object.Page{}, fmt.Errorf("%w: %w", object.ErrUnknown, err)
	}
	listed, err := client.ListObjectsV2(s.bucket, prefix, after, continuation, "", object.PageSize(ctx, pageSize))
	if err != nil {
		if end := ctx.Err(); end != nil {
			return object.Page{}, fmt.Errorf("%w: %w", object.ErrUnknown, end)
		}
		return object.Page{}, s.explain(err, object.ErrUnknown)
	}
	var page object.Page
	for _, o := range listed.Contents {
		if o.Key == "" {
			return object.Page{}, fmt.Errorf("%w: a listed object has no key", object.ErrUnknown)
		}
		o.ETag = strings.TrimSuffix(strings.TrimPrefix(o.ETag, `"`), `"`) // as the client does elsewhere
		if err := checkETag(o.ETag); err != nil {
			return object.Page{}, fmt.Errorf("in a listing: %w", err)
		}
		page.Objects = append(page.Objects, infoOf(o, o.Size))
		after = o.Key
	}
	if listed.IsTruncated {
		page.Next = after + tokenDelimiter + listed.NextContinuationToken
	}
	return page, nil
}

// within returns a client whose requests end with ctx. The client's only call that takes a
// continuation token has no context parameter.
func (s *Store) within(ctx context.Context) (minio.Core, error) {
	options := s.options
	options.Transport = bound{ctx, s.options.Transport}
	client, err := minio.New(s.endpoint, &options)
	if err != nil {
		return minio.Core{}, err
	}
	s.pin(client, s.endpoint)
	return minio.Core{Client: client}, nil
}

// bound sends requests under ctx instead of their own context.
type bound struct {
	ctx  context.Context
	next http.RoundTripper
}

var _ http.RoundTripper = bound{}

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.next.RoundTrip(r.WithContext(b.ctx))
}

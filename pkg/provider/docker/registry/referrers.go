package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// maxList bounds one page of a referrers list in bytes. A registry without pages returns a
	// single one, however much was attached to the image.
	maxList = 32 << 20
	// maxPages bounds the number of pages.
	maxPages = 1024
)

// errNoReferrers means that a registry does not support the referrers API.
var errNoReferrers = errors.New("the registry has no list of referrers")

// referrers lists the manifests that refer to an image, from all pages of the referrers API, or
// from the fallback tag in registries without it. The library's own function reads only the
// first page. On an error the list is incomplete and has what was read so far; the error is
// never provider.ErrInvalid, which would mean that nothing else exists.
func (c *Client) referrers(ctx context.Context, image name.Digest) ([]v1.Descriptor, error) {
	all, err := c.pages(ctx, image)
	if !errors.Is(err, errNoReferrers) {
		return all, err
	}
	tag := image.Context().Tag(strings.Replace(image.DigestStr(), ":", "-", 1))
	got, err := remote.Get(tag, c.options(ctx)...)
	if status(err) == http.StatusNotFound {
		return nil, nil // nothing attached yet
	}
	if err != nil {
		return nil, fmt.Errorf("read the referrers tag %s: %w", tag.TagStr(), err)
	}
	if got.MediaType != types.OCIImageIndex {
		return nil, fmt.Errorf("tag %s should be a list of referrers, but is a %.80q", tag.TagStr(), got.MediaType)
	}
	return readList(bytes.NewReader(got.Manifest))
}

func (c *Client) pages(ctx context.Context, image name.Digest) (all []v1.Descriptor, err error) {
	repository := image.Context()
	login, err := authn.Resolve(ctx, c.keychain, repository)
	if err != nil {
		return nil, fmt.Errorf("find the password of registry %s: %w", repository.RegistryStr(), err)
	}
	signed, err := transport.NewWithContext(ctx, repository.Registry, login, c.lists, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: signed}
	at := &url.URL{
		Scheme: repository.Scheme(), Host: repository.RegistryStr(),
		Path: "/v2/" + repository.RepositoryStr() + "/referrers/" + image.DigestStr(),
	}
	for n := 1; n <= maxPages; n++ {
		page, next, err := readPage(ctx, client, at)
		all = append(all, page...)
		if n > 1 && errors.Is(err, errNoReferrers) {
			return all, fmt.Errorf("page %d of the referrers list, %.200s, does not exist", n, at)
		}
		if len(all) > maxSeen {
			return all[:maxSeen], fmt.Errorf("the registry lists more than %d referrers of the image", maxSeen)
		}
		if err != nil || next == nil {
			return all, err
		}
		if next.Scheme != at.Scheme || next.Host != at.Host || next.String() == at.String() {
			return all, fmt.Errorf("invalid next page of the referrers list: %.200s, after %s", next, at)
		}
		at = next
	}
	return all, fmt.Errorf("the referrers list has more than %d pages", maxPages)
}

// readPage reads one page of the list and the URL of the next one; nil if it is the last. On an
// error it returns what was read so far.
func readPage(ctx context.Context, client *http.Client, at *url.URL) (page []v1.Descriptor, next *url.URL, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Accept", string(types.OCIImageIndex))
	answer, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	err = transport.CheckError(answer, http.StatusOK, http.StatusNotFound, http.StatusBadRequest, http.StatusNotAcceptable)
	if err != nil {
		return nil, nil, err
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	if answer.StatusCode != http.StatusOK || kind != string(types.OCIImageIndex) {
		return nil, nil, errNoReferrers
	}
	page, err = readList(answer.Body) // bounded
	if err != nil {
		return page, nil, err
	}
	next, err = nextPage(at, answer.Header.Values("Link"))
	return page, next, err
}

// readList reads the manifests of an index, at most maxSeen+1. On an error it returns those
// read so far.
func readList(from io.Reader) (all []v1.Descriptor, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the referrers list after %d manifests: %w", len(all), err)
		}
	}()
	d := json.NewDecoder(from)
	if err := expect(d, '{'); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return all, err
		}
		if key != "manifests" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return all, err
			}
			continue
		}
		if all, err = readManifests(d, all); err != nil || len(all) > maxSeen {
			return all, err
		}
	}
	return all, expect(d, '}')
}

// readManifests appends the manifests of an array to all.
func readManifests(d *json.Decoder, all []v1.Descriptor) ([]v1.Descriptor, error) {
	first, err := d.Token()
	if err != nil || first == nil { // null: none
		return all, err
	}
	if first != json.Delim('[') {
		return all, fmt.Errorf("manifests are %.80v: want an array", first)
	}
	for d.More() {
		var one v1.Descriptor
		if err := d.Decode(&one); err != nil {
			return all, err
		}
		if all = append(all, one); len(all) > maxSeen {
			return all, nil
		}
	}
	return all, expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("got %.80v, want %v", got, want)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// linkValue matches one link of a Link header (RFC 8288), and relNext the relation of the next
// page.
var (
	linkValue = regexp.MustCompile(`<([^<>]*)>([^<>]*)`)
	relNext   = regexp.MustCompile(`(?i);\s*rel\s*=\s*("[^"]*\bnext\b[^"]*"|next\b)`)
)

// nextPage returns the URL of the next page; nil if there is none.
func nextPage(at *url.URL, links []string) (*url.URL, error) {
	for _, link := range links {
		for _, m := range linkValue.FindAllStringSubmatch(link, -1) {
			if !relNext.MatchString(m[2]) {
				continue
			}
			next, err := at.Parse(m[1])
			if err != nil {
				return nil, fmt.Errorf("invalid next page of the referrers list: %.200q: %w", m[1], err)
			}
			return next, nil
		}
	}
	return nil, nil
}

package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

const (
	// maxBundles is how many bundles of one image are read per request: writers of the
	// registry can add any number. The next request continues with the rest.
	maxBundles = 1024
	// maxSeen bounds the number of remembered manifests.
	maxSeen = 64 * maxBundles
	// atOnce is the number of concurrent reads.
	atOnce = 8
	// bundleTimeout bounds the read of a bundle: a registry may redirect to a host that hangs.
	bundleTimeout = 5 * time.Second
)

// Seen caches which manifests of an image are not signatures of it by a key, which never
// changes for a digest. A Seen must be used for one image and one key only. The zero Seen is
// empty; it is safe for concurrent use.
type Seen struct {
	mu     sync.Mutex
	no     map[v1.Hash]error // reason
	failed map[v1.Hash]int   // number of failed reads
}

// Verify returns an error unless key has signed the image that reference names by digest. It
// uses the referrers API, and the fallback tag in registries without it. If all candidates were
// read and none is valid, the error is provider.ErrInvalid with the reasons; if some could not
// be read it is temporary, and the next call continues with the rest.
func (c *Client) Verify(ctx context.Context, reference string, key signature.Key, seen *Seen) error {
	image, err := name.NewDigest(reference)
	if err != nil {
		return fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, reference, err)
	}
	candidates, incomplete := c.candidates(ctx, image)
	if incomplete != nil && len(candidates) == 0 {
		return fmt.Errorf("ask for the signature of image %s: %w", reference, unlisted(incomplete))
	}
	q := &question{c: c, image: image, key: key, seen: seen, gone: map[v1.Hash]error{}}
	unread := seen.unread(candidates)
	q.read(ctx, unread[:min(len(unread), maxBundles)])
	if q.found {
		return nil
	}
	unread = slices.DeleteFunc(seen.unread(candidates), func(of v1.Descriptor) bool { return q.gone[of.Digest] != nil })
	if left := len(unread); left > 0 {
		err := errors.Join(ctx.Err(), q.failure, unlisted(incomplete))
		if err == nil {
			err = errors.New("the rest is read by the next attempt")
		}
		return fmt.Errorf("read the signatures of image %s: none of %d matches options.verify_key, and %d are unread: %w",
			reference, len(candidates)-left, left, brief{err})
	}
	if incomplete != nil {
		return fmt.Errorf("read the signatures of image %s: none of %d matches options.verify_key, and there may be more: %w",
			reference, len(candidates), unlisted(incomplete))
	}
	return fmt.Errorf("%w: image %s has no signature by the key of options.verify_key: %s",
		provider.ErrInvalid, reference, q.reasons(candidates))
}

// question is one search for an image's signature by a key.
type question struct {
	c     *Client
	image name.Digest
	key   signature.Key
	seen  *Seen

	mu      sync.Mutex
	found   bool
	gone    map[v1.Hash]error // manifests that are missing or damaged in the registry
	failure error             // error of the last failed read
}

// read reads candidates concurrently until one is the signature. A failed read does not stop
// the others.
func (q *question) read(ctx context.Context, candidates []v1.Descriptor) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	next := make(chan v1.Descriptor)
	for range min(atOnce, len(candidates)) {
		workers.Go(func() {
			for of := range next {
				if q.conclude(ctx, of, q.judge(ctx, of)) {
					stop()
				}
			}
		})
	}
	for _, of := range candidates {
		select {
		case next <- of:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	workers.Wait()
}

// conclude records the result for a candidate, and reports whether it is the signature.
func (q *question) conclude(ctx context.Context, of v1.Descriptor, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case err == nil:
		q.found = true
	case errors.Is(err, errNotSigned), errors.Is(err, errNoBundle):
		q.seen.note(of.Digest, err)
	case damaged(err):
		q.gone[of.Digest] = err
		q.seen.fail(of.Digest) // so that the next call begins with others
	case ctx.Err() == nil:
		q.seen.fail(of.Digest)
		q.failure = kind(err)
	}
	return err == nil
}

// judge returns an error unless a manifest holds the key's signature of the image.
func (q *question) judge(ctx context.Context, of v1.Descriptor) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	text, err := q.c.bundle(ctx, q.image.Context().Digest(of.Digest.String()))
	if err != nil {
		return err
	}
	err = q.key.Verify(q.image.DigestStr(), text, func(said string) bool { return sameRepository(said, q.image) })
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSigned, err)
	}
	return nil
}

// reasons describes why none of the candidates, all of which were read, is the signature.
func (q *question) reasons(candidates []v1.Descriptor) string {
	const told = 3
	var against []string
	for _, of := range candidates {
		why := cmp.Or(q.gone[of.Digest], q.seen.why(of.Digest))
		if why == nil || errors.Is(why, errNoBundle) {
			continue
		}
		text := strings.TrimPrefix(why.Error(), errNotSigned.Error()+": ")
		if len(against) <= told && !slices.Contains(against, text) {
			against = append(against, text)
		}
	}
	switch {
	case len(against) == 0:
		return "the registry has none for it"
	case len(against) > told:
		against = append(against[:told:told], "…")
	}
	return fmt.Sprintf("of its %d referrers the registry has %s", len(candidates), strings.Join(against, "; "))
}

// errNotSigned means that a bundle is not a signature of an image by a key.
var errNotSigned = errors.New("no such signature")

// unread returns the candidates that may still be the signature; those whose reads failed
// before come last.
func (s *Seen) unread(candidates []v1.Descriptor) (left []v1.Descriptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range candidates {
		if s.no[of.Digest] == nil {
			left = append(left, of)
		}
	}
	slices.SortStableFunc(left, func(a, b v1.Descriptor) int { return s.failed[a.Digest] - s.failed[b.Digest] })
	return left
}

func (s *Seen) note(digest v1.Hash, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.no == nil || len(s.no) >= maxSeen {
		s.no = map[v1.Hash]error{}
	}
	s.no[digest] = brief{why}
}

func (s *Seen) fail(digest v1.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil || len(s.failed) >= maxSeen {
		s.failed = map[v1.Hash]int{}
	}
	s.failed[digest]++
}

// why returns why a candidate is not the signature; nil if it is not known.
func (s *Seen) why(digest v1.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.no[digest]
}

// candidates returns the referrers of an image that may hold a signature, likely ones first, by
// their unverified annotations. On an error there may be more.
func (c *Client) candidates(ctx context.Context, image name.Digest) ([]v1.Descriptor, error) {
	all, err := c.referrers(ctx, image)
	slices.SortStableFunc(all, func(a, b v1.Descriptor) int { return rank(a) - rank(b) })
	return all, err
}

// unlisted wraps the error of a list in its kind: without a list there is no answer, even if
// the registry answers not found.
func unlisted(err error) error {
	if status(err) == http.StatusNotFound {
		return brief{err}
	}
	return kind(err)
}

// rank orders candidates by their annotations and types. Some registries omit either.
func rank(d v1.Descriptor) int {
	switch says := d.Annotations["dev.sigstore.bundle.predicateType"]; {
	case says == signature.PredicateType:
		return 0
	case says == "" && d.ArtifactType == signature.BundleType:
		return 1
	case says == "":
		return 2
	default:
		return 3
	}
}

// damaged reports whether err is about the registry's content rather than the connection. The
// library reports a digest mismatch as text only.
func damaged(err error) bool {
	if status(err) != 0 { // then the text is the registry's
		return errors.Is(kind(err), provider.ErrInvalid)
	}
	return errors.Is(err, provider.ErrInvalid) ||
		strings.Contains(err.Error(), "error verifying") || strings.Contains(err.Error(), "does not match requested digest")
}

// errBundle returns a provider.ErrInvalid about a manifest that should hold a bundle.
func errBundle(format string, args ...any) error {
	return fmt.Errorf("%w: %w", provider.ErrInvalid, fmt.Errorf(format, args...))
}

// errNoBundle means that a referrer of an image holds something else.
var errNoBundle = errors.New("no signature bundle")

// bundle reads the bundle of a manifest.
func (c *Client) bundle(ctx context.Context, manifest name.Digest) ([]byte, error) {
	options := c.options(ctx)
	got, err := remote.Get(manifest, options...)
	if err != nil {
		return nil, err
	}
	if !got.MediaType.IsImage() {
		return nil, errNoBundle
	}
	image, err := v1.ParseManifest(strings.NewReader(string(got.Manifest)))
	if err != nil {
		return nil, errBundle("an unreadable manifest: %w", err)
	}
	if len(image.Layers) != 1 || image.Layers[0].MediaType != signature.BundleType {
		return nil, errNoBundle
	}
	if size := image.Layers[0].Size; size > signature.MaxBundle {
		return nil, fmt.Errorf("%w: a bundle of %d bytes: want at most %d", errNotSigned, size, signature.MaxBundle)
	}
	layer, err := remote.Layer(manifest.Context().Digest(image.Layers[0].Digest.String()), options...)
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// Read one byte more to detect a bundle that is too long. Its length is then not the
	// manifest's, and its digest was not compared.
	text, err := io.ReadAll(io.LimitReader(body, signature.MaxBundle+1))
	if err == nil && len(text) > signature.MaxBundle {
		err = errBundle("a bundle longer than its manifest says, %d bytes", image.Layers[0].Size)
	}
	return text, err
}

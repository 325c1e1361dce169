package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/johannesboyne/gofakes3"

	"github.com/nstance/nstance/pkg/object"
)

// maxBody bounds an object, in bytes: its body is held in memory.
const maxBody = 64 << 20

// backend is what gofakes3 asks of a storage.
type backend struct {
	bucket string
	store  *store
}

var _ gofakes3.Backend = (*backend)(nil)

func (b *backend) ListBuckets() ([]gofakes3.BucketInfo, error) {
	info, err := b.store.root.Stat(".")
	if err != nil {
		return nil, err
	}
	return []gofakes3.BucketInfo{{Name: b.bucket, CreationDate: gofakes3.NewContentTime(info.ModTime())}}, nil
}

func (b *backend) BucketExists(name string) (bool, error) { return name == b.bucket, nil }

func (b *backend) CreateBucket(name string) error {
	if name == b.bucket {
		return gofakes3.ResourceError(gofakes3.ErrBucketAlreadyExists, name)
	}
	return gofakes3.ErrorMessagef(gofakes3.ErrTooManyBuckets, "this store has one bucket, %q", b.bucket)
}

func (b *backend) DeleteBucket(string) error {
	return gofakes3.ErrorMessage(gofakes3.ErrNotImplemented, "the bucket stays")
}

func (b *backend) ForceDeleteBucket(name string) error { return b.DeleteBucket(name) }

func (b *backend) GetObject(_, key string, asked *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	o, body, err := b.read(key)
	if err != nil {
		return nil, err
	}
	part, err := asked.Range(o.size)
	if err != nil {
		return nil, err
	}
	if part != nil {
		body = body[part.Start : part.Start+part.Length]
	}
	return reply(o, io.NopCloser(bytes.NewReader(body)), part), nil
}

func (b *backend) HeadObject(_, key string) (*gofakes3.Object, error) {
	o, _, err := b.read(key)
	if err != nil {
		return nil, err
	}
	return reply(o, io.NopCloser(strings.NewReader("")), nil), nil
}

func (b *backend) read(key string) (stored, []byte, error) {
	if err := checkKey(key); err != nil {
		return stored{}, nil, refuse(err)
	}
	o, body, err := b.store.get(key)
	if errors.Is(err, errNoKey) {
		return stored{}, nil, gofakes3.KeyNotFound(key)
	}
	return o, body, err
}

// httpTime is the form of a Last-Modified header (RFC 9110, section 5.6.7).
const httpTime = "Mon, 02 Jan 2006 15:04:05 GMT"

func reply(o stored, body io.ReadCloser, part *gofakes3.ObjectRange) *gofakes3.Object {
	return &gofakes3.Object{
		Name:     o.key,
		Metadata: map[string]string{"Last-Modified": o.modTime.UTC().Format(httpTime)},
		Size:     o.size,
		Contents: body,
		Hash:     o.sum[:],
		Range:    part,
	}
}

func (b *backend) PutObject(
	_, key string, meta map[string]string, input io.Reader, size int64, conditions *gofakes3.PutConditions,
) (gofakes3.PutObjectResult, error) {
	if err := checkKey(key); err != nil {
		return gofakes3.PutObjectResult{}, refuse(err)
	}
	// gofakes3 decodes one of the chunked forms; it would store the framing of others.
	sent := meta["X-Amz-Content-Sha256"]
	if strings.HasPrefix(sent, "STREAMING-") && sent != "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" {
		return gofakes3.PutObjectResult{}, gofakes3.ErrorMessagef(gofakes3.ErrNotImplemented, "a body sent as %s", sent)
	}
	if size > maxBody {
		return gofakes3.PutObjectResult{}, gofakes3.ErrorMessagef(gofakes3.ErrInvalidArgument,
			"a body of %d bytes, at most %d are taken", size, maxBody)
	}
	body, err := gofakes3.ReadAll(input, size)
	if err != nil {
		return gofakes3.PutObjectResult{}, err
	}
	err = b.store.put(key, body, func(now *stored) error { return judge(conditions, now) })
	return gofakes3.PutObjectResult{}, refuse(err)
}

func judge(c *gofakes3.PutConditions, now *stored) error {
	if c == nil {
		return nil
	}
	var info gofakes3.ConditionalObjectInfo
	if now != nil {
		info = gofakes3.ConditionalObjectInfo{Exists: true, Hash: now.sum[:]}
	}
	return gofakes3.CheckPutConditions(c, &info)
}

func (b *backend) DeleteObject(_, key string) (gofakes3.ObjectDeleteResult, error) {
	if err := checkKey(key); err != nil {
		return gofakes3.ObjectDeleteResult{}, refuse(err)
	}
	return gofakes3.ObjectDeleteResult{}, b.store.delete(key)
}

func (b *backend) DeleteMulti(bucket string, keys ...string) (gofakes3.MultiDeleteResult, error) {
	var result gofakes3.MultiDeleteResult
	for _, key := range keys {
		if _, err := b.DeleteObject(bucket, key); err != nil {
			failed := gofakes3.ErrorResult{Key: key, Code: gofakes3.ErrInternal, Message: err.Error()}
			result.Error = append(result.Error, failed)
			continue
		}
		result.Deleted = append(result.Deleted, gofakes3.ObjectID{Key: key})
	}
	return result, nil
}

func (b *backend) CopyObject(fromBucket, from, toBucket, to string, meta map[string]string) (gofakes3.CopyObjectResult, error) {
	delete(meta, "X-Amz-Content-Sha256") // of the request, which has no body
	return gofakes3.CopyObject(b, fromBucket, from, toBucket, to, meta)
}

func (b *backend) ListBucket(_ string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if prefix == nil {
		prefix = &gofakes3.Prefix{}
	}
	keys, err := b.store.keys(prefix.Prefix)
	if err != nil {
		return nil, err
	}
	keys, next := cut(keys, *prefix, page)
	list := gofakes3.NewObjectList()
	list.NextMarker, list.IsTruncated = next, next != ""
	for _, key := range keys {
		if entry, folded := fold(key, *prefix); folded {
			list.AddPrefix(entry)
			continue
		}
		o, err := b.store.stat(key)
		if errors.Is(err, errNoKey) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		list.Add(&gofakes3.Content{
			Key:          key,
			LastModified: gofakes3.NewContentTime(o.modTime),
			ETag:         gofakes3.FormatETag(o.sum[:]),
			Size:         o.size,
		})
	}
	return list, nil
}

// refuse gives our own refusals the code of a bad request; the rest stays as it is.
func refuse(err error) error {
	if errors.Is(err, object.ErrInvalidKey) || errors.Is(err, errKeyIsPath) {
		return gofakes3.ErrorMessage(gofakes3.ErrInvalidArgument, fmt.Sprint(err))
	}
	return err
}

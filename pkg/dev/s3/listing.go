package s3

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strconv"
)

// maxKeys is the maximum and the default size of a page.
const maxKeys = 1000

type location struct {
	XMLName   xml.Name `xml:"LocationConstraint"` // empty: us-east-1
	Namespace string   `xml:"xmlns,attr"`
}

type listAllMyBucketsResult struct {
	XMLName   xml.Name `xml:"ListAllMyBucketsResult"`
	Namespace string   `xml:"xmlns,attr"`
	Buckets   []bucket `xml:"Buckets>Bucket"`
}

type bucket struct{ Name, CreationDate string }

type listBucketResult struct {
	XMLName        xml.Name `xml:"ListBucketResult"`
	Namespace      string   `xml:"xmlns,attr"`
	Name           string
	Prefix         string
	Delimiter      string `xml:",omitempty"`
	EncodingType   string `xml:",omitempty"`
	MaxKeys        int
	IsTruncated    bool
	Contents       []content
	CommonPrefixes []commonPrefix

	// Of version 1.
	Marker     *string
	NextMarker string `xml:",omitempty"`

	// Of version 2.
	KeyCount              *int
	StartAfter            string `xml:",omitempty"`
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
}

type content struct {
	Key, LastModified, ETag string
	Size                    int64
	StorageClass            string
}

type commonPrefix struct{ Prefix string }

func (p *protocol) listBuckets(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return newRefusal(http.StatusMethodNotAllowed, "MethodNotAllowed", "%.20s of the store: want GET, which lists its bucket", r.Method)
	}
	if err := checkParameters(r); err != nil {
		return err
	}
	info, err := p.store.root.Stat(".")
	if err != nil {
		return err
	}
	return write(w, listAllMyBucketsResult{Namespace: namespace, Buckets: []bucket{{p.bucket, formatTime(info.ModTime())}}})
}

// listing has the parameters of a list request.
type listing struct {
	prefix, delimiter string
	after             string // the marker: the page begins after this entry; empty: with the first one
	max               int
	urlEncoded        bool // names in the reply are URL-encoded
	v2                bool // ListObjectsV2
}

// listingOf reads the parameters of a listing. The continuation tokens of version 2 are encoded
// markers, so that clients treat them as opaque.
func listingOf(r *http.Request) (listing, error) {
	if err := checkParameters(r, "list-type", "prefix", "delimiter", "max-keys", "encoding-type", "marker", "start-after",
		"continuation-token", "fetch-owner"); err != nil {
		return listing{}, err
	}
	query := r.URL.Query()
	l := listing{prefix: query.Get("prefix"), delimiter: query.Get("delimiter"), after: query.Get("marker"), max: maxKeys}
	switch query.Get("list-type") {
	case "":
	case "2":
		l.v2, l.after = true, query.Get("start-after")
	default:
		return l, invalidParameter(query, "list-type", "2, or no such parameter")
	}
	switch query.Get("encoding-type") {
	case "":
	case "url":
		l.urlEncoded = true
	default:
		return l, invalidParameter(query, "encoding-type", "url, or no such parameter")
	}
	if query.Has("max-keys") {
		n, err := strconv.ParseUint(query.Get("max-keys"), 10, 31)
		if err != nil {
			return l, invalidParameter(query, "max-keys", "a whole number from 0 on")
		}
		l.max = int(min(n, maxKeys))
	}
	if token := query.Get("continuation-token"); l.v2 && token != "" {
		marker, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return l, invalidParameter(query, "continuation-token", "one from an answer, unchanged")
		}
		l.after = string(marker)
	}
	return l, nil
}

func invalidParameter(query url.Values, name, want string) error {
	return newRefusal(http.StatusBadRequest, "InvalidArgument", "%s %.80q: want %s", name, query.Get(name), want)
}

// encode encodes a name for the reply.
func (l listing) encode(name string) string {
	if l.urlEncoded {
		return url.QueryEscape(name)
	}
	return name
}

func (p *protocol) listObjects(w http.ResponseWriter, r *http.Request) error {
	l, err := listingOf(r)
	if err != nil {
		return err
	}
	keys, err := p.store.keys(l.prefix)
	if err != nil {
		return err
	}
	keys, next := l.paginate(keys)
	out := listBucketResult{
		Namespace: namespace, Name: p.bucket, Prefix: l.encode(l.prefix), Delimiter: l.encode(l.delimiter),
		MaxKeys: l.max, IsTruncated: next != "",
	}
	if l.urlEncoded {
		out.EncodingType = "url"
	}
	for _, key := range keys {
		if entry, folded := l.fold(key); folded {
			out.CommonPrefixes = append(out.CommonPrefixes, commonPrefix{l.encode(entry)})
			continue
		}
		o, err := p.store.stat(key)
		if errors.Is(err, errNoKey) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		out.Contents = append(out.Contents, content{l.encode(key), formatTime(o.modTime), o.etag(), o.size, "STANDARD"})
	}
	l.setPosition(&out, r.URL.Query(), next)
	return write(w, out)
}

// setPosition sets the marker or token fields of the requested version.
func (l listing) setPosition(out *listBucketResult, query url.Values, next string) {
	if !l.v2 {
		marker := l.encode(l.after)
		out.Marker, out.NextMarker = &marker, l.encode(next)
		return
	}
	count := len(out.Contents) + len(out.CommonPrefixes)
	out.KeyCount, out.StartAfter, out.ContinuationToken = &count, l.encode(query.Get("start-after")), query.Get("continuation-token")
	if next != "" {
		out.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(next))
	}
}

package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// core returns a real S3 client.
func (f *front) core() minio.Core {
	f.t.Helper()
	client, err := minio.NewCore(strings.TrimPrefix(f.url, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(keyID, secretKey, ""), Region: "us-east-1"})
	if err != nil {
		f.t.Fatal(err)
	}
	return *client
}

// TestClient: a real client understands the replies.
func TestClient(t *testing.T) {
	f := start(t, t.TempDir())
	client := f.core()
	keys := []string{"a b/ü+%2F", "a&<b>", "c/1", "c/2", "c/3", "d"}
	for _, key := range keys {
		body, size := strings.NewReader(key), int64(len(key))
		if _, err := client.PutObject(t.Context(), "dev", key, body, size, "", "", minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	for o := range client.Client.ListObjects(t.Context(), "dev", minio.ListObjectsOptions{Recursive: true, MaxKeys: 2}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		sum := fmt.Sprintf("%x", md5.Sum([]byte(o.Key)))
		if o.Size != int64(len(o.Key)) || strings.Trim(o.ETag, `"`) != sum || o.LastModified.IsZero() {
			t.Errorf("listed %+v", o)
		}
		listed = append(listed, o.Key)
	}
	if fmt.Sprint(listed) != fmt.Sprint(keys) {
		t.Errorf("in pages of 2 there are %q, want %q", listed, keys)
	}
	page, err := client.ListObjectsV2("dev", "c/", "c/1", "", "", 1)
	if err != nil || len(page.Contents) != 1 || page.Contents[0].Key != "c/2" || !page.IsTruncated {
		t.Errorf("after c/1: %+v, %v", page, err)
	}
	info, err := client.StatObject(t.Context(), "dev", "c/1", minio.StatObjectOptions{})
	if err != nil || info.Size != 3 || info.LastModified.IsZero() {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if _, err := client.StatObject(t.Context(), "dev", "none", minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
		t.Errorf("stat of what is not there: %v", err)
	}
	if _, _, _, err := client.GetObject(t.Context(), "dev", "none", minio.GetObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
		t.Errorf("get of what is not there: %v", err)
	}
	_, err = client.CopyObject(t.Context(), "dev", "c/1", "dev", "copied/ü", nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
	if err != nil {
		t.Errorf("copy: %v", err)
	}
	body, _, _, err := client.GetObject(t.Context(), "dev", "copied/ü", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); string(got) != "c/1" || err != nil {
		t.Errorf("the copy is %q, %v", got, err)
	}
	gone := make(chan minio.ObjectInfo, 2)
	gone <- minio.ObjectInfo{Key: "c/1"}
	gone <- minio.ObjectInfo{Key: "c/2"}
	close(gone)
	for failed := range client.RemoveObjects(t.Context(), "dev", gone, minio.RemoveObjectsOptions{}) {
		t.Errorf("remove %s: %v", failed.ObjectName, failed.Err)
	}
	f.want(404, "GET", "/dev/c/2", "")
	f.want(200, "GET", "/dev/c/3", "")
	if place, err := client.GetBucketLocation(t.Context(), "dev"); err != nil || place != "us-east-1" {
		t.Errorf("the bucket is in %q, %v", place, err)
	}
	if there, err := client.BucketExists(t.Context(), "dev"); err != nil || !there {
		t.Errorf("there is the bucket: %v, %v", there, err)
	}
}

// TestWhatIsNotServed: parameters, headers and methods of other operations are refused without
// effect.
func TestWhatIsNotServed(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "kept")
	for _, c := range []struct {
		status       int
		method, path string
		headers      []string
	}{
		{501, "GET", "/dev/k?versionId=1", nil},
		{501, "PUT", "/dev/k?acl", nil},
		{501, "DELETE", "/dev/k?tagging", nil},
		{501, "POST", "/dev/k?uploads", nil},
		{501, "PUT", "/dev/k?uploadId=1&partNumber=1", nil},
		{501, "GET", "/dev?versions", nil},
		{501, "GET", "/dev?location&policy", nil},
		{501, "POST", "/dev", nil},
		{405, "POST", "/", nil},
		{501, "PUT", "/dev/k", []string{"If-None-Match", `"0123"`}},
		{501, "PUT", "/dev/k", []string{"X-Amz-Copy-Source", "/dev/k", "X-Amz-Copy-Source-If-Match", `"0123"`}},
		{400, "PUT", "/dev/k", []string{"X-Amz-Copy-Source", "/dev/k?versionId=1"}},
		{404, "PUT", "/dev/k", []string{"X-Amz-Copy-Source", "/other/k"}},
		{404, "PUT", "/dev/k", []string{"X-Amz-Copy-Source", "/dev/none"}},
		{400, "PUT", "/dev/k", []string{"X-Amz-Copy-Source", "/dev/../k"}},
		{400, "PUT", "/dev/k", []string{"Content-MD5", "nonsense"}},
		{400, "GET", "/dev?list-type=3", nil},
		{400, "GET", "/dev?max-keys=-1", nil},
		{400, "GET", "/dev?encoding-type=xml", nil},
		{400, "GET", "/dev?list-type=2&continuation-token=.", nil},
		{400, "POST", "/dev?delete", nil},
	} {
		f.want(c.status, c.method, c.path, "other", c.headers...)
	}
	if _, got := f.want(200, "GET", "/dev/k", ""); got != "kept" {
		t.Errorf("the object is %q", got)
	}
	sum := md5.Sum([]byte("new"))
	etag, _ := f.want(200, "PUT", "/dev/k", "new", "Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	f.want(304, "GET", "/dev/k", "", "If-None-Match", etag)
	f.want(412, "GET", "/dev/k", "", "If-Match", `"0123"`)
}

// FuzzDelete: no body of a multi-object delete reaches outside of the directory, and each gets a
// reply.
func FuzzDelete(f *testing.F) {
	for _, body := range []string{
		`<Delete><Object><Key>a</Key></Object></Delete>`, `<Delete><Quiet>true</Quiet><Object><Key>../x</Key></Object></Delete>`,
		`<Delete><Object><Key>.dev-s3/lock</Key></Object></Delete>`, `<Delete/>`, `<Delete><Object>`, ``, "\x00",
	} {
		f.Add([]byte(body))
	}
	outer, server := beside(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &http.Request{
			Method: http.MethodPost, URL: &url.URL{Path: "/dev", RawQuery: "delete"}, Header: http.Header{}, Host: "127.0.0.1",
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}
		if err := signs().sign(r); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
		for _, name := range []string{"x", "root/.dev-s3/lock"} {
			if _, err := os.Stat(filepath.Join(outer, name)); err != nil {
				t.Errorf("after %q: %v", body, err)
			}
		}
	})
}

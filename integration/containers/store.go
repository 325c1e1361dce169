//go:build integration

package containers

import (
	"net/netip"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/testcontainers/testcontainers-go"
	tcminio "github.com/testcontainers/testcontainers-go/modules/minio"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/nstance/nstance/pkg/object/s3"
)

const (
	region      = "us-east-1"
	startWithin = 2 * time.Minute // generous for a machine under load
)

// Store is an S3 server in a container. This machine and the containers on its network reach it at
// the same address.
type Store struct {
	*Container
	Endpoint   string // a URL
	id, secret string
}

// Data is the storage of a store: a volume of the story, which outlives the container, or memory of
// a limited size, such as 24m.
type Data struct{ Size string }

// MinIO starts a store with the image of MINIO_IMAGE, or the stand-in.
func (w *World) MinIO(name string, at At, data Data) *Store {
	w.Helper()
	image := w.StandIn("minio")
	options := append(w.options(name, at), w.data("/data", name, data),
		testcontainers.WithWaitStrategyAndDeadline(startWithin, wait.ForHTTP("/minio/health/live").WithPort("9000")))
	made, err := tcminio.Run(w.Context(), image, options...)
	s := &Store{Container: w.adopt(made, err, name, at), id: made.Username, secret: made.Password}
	s.Endpoint = endpointURL(s.Address, 9000)
	return s
}

// Versitygw starts a store with the image of VERSITYGW_IMAGE, or the stand-in.
func (w *World) Versitygw(name string, at At, data Data) *Store {
	w.Helper()
	s := &Store{id: "integration", secret: "integration-secret"}
	image := w.StandIn("versitygw")
	s.Container = w.Run(name, image, at, w.data("/data", name, data),
		testcontainers.WithEnv(map[string]string{"ROOT_ACCESS_KEY": s.id, "ROOT_SECRET_KEY": s.secret, "VGW_HEALTH": "/health"}),
		testcontainers.WithExposedPorts("7070/tcp"),
		testcontainers.WithCmd("--port", ":7070", "--region", region, "posix", "/data"),
		testcontainers.WithWaitStrategyAndDeadline(startWithin, wait.ForHTTP("/health").WithPort("7070")))
	s.Endpoint = endpointURL(s.Address, 7070)
	return s
}

func endpointURL(address netip.Addr, port uint16) string {
	return "http://" + netip.AddrPortFrom(address, port).String()
}

// data mounts the storage of a store.
func (w *World) data(folder, name string, data Data) testcontainers.CustomizeRequestOption {
	if data.Size != "" {
		return testcontainers.WithTmpfs(map[string]string{folder: "size=" + data.Size})
	}
	volume := mount.Mount{
		Type: mount.TypeVolume, Source: w.Cluster + "-" + name, Target: folder,
		VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{Label: w.Story}},
	}
	return testcontainers.WithHostConfigModifier(func(host *container.HostConfig) { host.Mounts = append(host.Mounts, volume) })
}

// Config returns the configuration for a bucket of the store.
func (s *Store) Config(bucket string) s3.Config {
	return s3.Config{
		Bucket: bucket, Endpoint: s.Endpoint, Region: region, PathStyle: true, Insecure: true, AccessKeyID: s.id, SecretAccessKey: s.secret,
	}
}

// Env returns the environment for a program that uses the store, without the bucket's name.
func (s *Store) Env() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": s.Endpoint, "AWS_REGION": region, "AWS_S3_USE_PATH_STYLE": "true",
		"AWS_ACCESS_KEY_ID": s.id, "AWS_SECRET_ACCESS_KEY": s.secret, "NSTANCE_INSECURE_STORAGE": "true",
	}
}

// Bucket creates a bucket and opens it.
func (w *World) Bucket(s *Store, name string) *s3.Store {
	w.Helper()
	api, err := minio.New(strings.TrimPrefix(s.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(s.id, s.secret, ""), Region: region, BucketLookup: minio.BucketLookupPath,
	})
	w.Must(err)
	w.Must(api.MakeBucket(w.Context(), name, minio.MakeBucketOptions{Region: region}))
	opened, err := s3.New(s.Config(name))
	w.Must(err)
	return opened
}

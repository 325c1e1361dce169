package s3_test

import (
	"net/http/httptest"
	"testing"

	devs3 "github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/object/s3"
)

// openDev is the real client on a real socket to the development server.
func openDev(t *testing.T) object.Store {
	t.Helper()
	server, err := devs3.New(devs3.Config{Root: t.TempDir(), Bucket: "dev", Keys: devs3.Key("id", "secret", "")})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server)
	t.Cleanup(func() {
		front.Close()
		server.Close()
	})
	return open(t, s3.Config{Bucket: "dev", Endpoint: front.URL})
}

func open(t *testing.T, cfg s3.Config) *s3.Store {
	t.Helper()
	cfg.PathStyle = true
	cfg.AccessKeyID, cfg.SecretAccessKey = "id", "secret"
	s, err := s3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	objecttest.Run(t, openDev, objecttest.KeysInsideKeys)
}

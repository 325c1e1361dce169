package aws

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/dev/gate"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// MetadataURL returns a machine's AWS_EC2_METADATA_SERVICE_ENDPOINT. Each machine has an address of
// its own, as clients accept no path in it, which is served until Serve ends.
func (s *Server) MetadataURL(ctx context.Context, instance string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if url, ok := s.metadata[instance]; ok {
		return url, nil
	}
	if !slices.ContainsFunc(s.cfg.Cloud.Machines(), func(m awstest.Machine) bool { return m.ID == instance }) {
		return "", fmt.Errorf("no machine %.80q", instance)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve the metadata of %s: %w", instance, err)
	}
	server := &http.Server{Handler: gate.Local("", s.cfg.Cloud.Metadata(instance)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until closeMetadata
	s.services = append(s.services, server)
	s.metadata[instance] = "http://" + l.Addr().String()
	return s.metadata[instance], nil
}

func (s *Server) closeMetadata() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.services {
		_ = server.Close() // open requests are of no use any more
	}
}

func (s *Server) serveMetadataURL(w http.ResponseWriter, r *http.Request) {
	url, err := s.MetadataURL(r.Context(), r.PathValue("instance"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, url)
}

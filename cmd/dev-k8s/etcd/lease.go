package etcd

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

type leases struct {
	pb.UnimplementedLeaseServer
	store *store.Store
}

// LeaseGrant implements LeaseServer.
func (l *leases) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	granted, err := l.store.Grant(r.ID, r.TTL)
	if err != nil {
		return nil, refused(err)
	}
	return &pb.LeaseGrantResponse{Header: header(l.store.Revision()), ID: granted.ID, TTL: granted.TTL}, nil
}

// LeaseRevoke implements LeaseServer.
func (l *leases) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := l.store.Revoke(r.ID); err != nil {
		return nil, refused(err)
	}
	return &pb.LeaseRevokeResponse{Header: header(l.store.Revision())}, nil
}

// LeaseKeepAlive implements LeaseServer.
func (l *leases) LeaseKeepAlive(with pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := with.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out := &pb.LeaseKeepAliveResponse{ID: r.ID} // a TTL of 0 means expired
		lease, err := l.store.KeepAlive(r.ID)
		switch {
		case err == nil:
			out.TTL = lease.TTL
		case !errors.Is(err, store.ErrNoLease):
			return refused(err)
		}
		out.Header = header(l.store.Revision())
		if err := with.Send(out); err != nil {
			return err
		}
	}
}

// LeaseTimeToLive implements LeaseServer.
func (l *leases) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	out := &pb.LeaseTimeToLiveResponse{Header: header(l.store.Revision()), ID: r.ID, TTL: -1}
	lease, seconds, keys, err := l.store.Remaining(r.ID)
	if errors.Is(err, store.ErrNoLease) {
		return out, nil
	}
	out.TTL, out.GrantedTTL = seconds, lease.TTL
	for _, key := range keys {
		if r.Keys {
			out.Keys = append(out.Keys, []byte(key))
		}
	}
	return out, refused(err)
}

type maintenance struct {
	pb.UnimplementedMaintenanceServer
	store *store.Store
}

// version is the version of etcd that is emulated: kube-apiserver asks for it before it relies
// on progress notifications.
const version = "3.6.14"

// Status implements MaintenanceServer.
func (m *maintenance) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	size := m.store.Size()
	return &pb.StatusResponse{
		Header: header(m.store.Revision()), Version: version, DbSize: size, DbSizeInUse: size, Leader: 1, RaftIndex: 1, RaftTerm: 1,
	}, nil
}

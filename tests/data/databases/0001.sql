BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE block (
        id INTEGER NOT NULL,
        digest BLOB NOT NULL,
        raw_bytes INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (digest)
    )
     STRICT
    ;
INSERT INTO "block" VALUES(1,X'22896BCBC3D1C76A0B90C4C3523DBEA532AD63196FAFDBD52CCED52200D3DAE4',5,4160,1);
INSERT INTO "block" VALUES(2,X'CD85637651EC7A557BDDD61C5DDD1DF21AD8BBBAF6C3C098482B3ED1C1014964',6,4160,1);
INSERT INTO "block" VALUES(3,X'42F1D0A285AEBBEC81C29B9E334AAA322F6F24AC7D5F14C3B89AA50A9BC7B2D1',5,4160,1);
CREATE TABLE component (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        name TEXT NOT NULL,
        raw_bytes INTEGER NOT NULL,
        digest BLOB,
        upload TEXT,
        PRIMARY KEY (state, ordinal),
        UNIQUE (state, name),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
INSERT INTO "component" VALUES(1,0,'full',5,X'22896BCBC3D1C76A0B90C4C3523DBEA532AD63196FAFDBD52CCED52200D3DAE4',NULL);
INSERT INTO "component" VALUES(2,0,'full',6,X'CD85637651EC7A557BDDD61C5DDD1DF21AD8BBBAF6C3C098482B3ED1C1014964',NULL);
INSERT INTO "component" VALUES(3,0,'full',5,X'42F1D0A285AEBBEC81C29B9E334AAA322F6F24AC7D5F14C3B89AA50A9BC7B2D1',NULL);
CREATE TABLE counter (
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (name, label)
    )
     WITHOUT ROWID,
     STRICT
    ;
INSERT INTO "counter" VALUES('admissions','admitted',4);
INSERT INTO "counter" VALUES('blocks_deduplicated','',0);
INSERT INTO "counter" VALUES('blocks_written','',4);
INSERT INTO "counter" VALUES('evictions','admin',1);
INSERT INTO "counter" VALUES('hit_tokens','',3);
INSERT INTO "counter" VALUES('leases_opened','',1);
INSERT INTO "counter" VALUES('lookups','hit',1);
INSERT INTO "counter" VALUES('quarantines','operator',1);
INSERT INTO "counter" VALUES('recorded_bytes','',22);
INSERT INTO "counter" VALUES('records','committed',4);
INSERT INTO "counter" VALUES('stored_bytes_written','',278);
CREATE TABLE lease (
        lease_id TEXT NOT NULL,
        state_id TEXT NOT NULL,
        ttl_ms INTEGER NOT NULL,
        expires_boot_ms INTEGER NOT NULL,
        outcome TEXT,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (lease_id)
    )
     STRICT
    ;
INSERT INTO "lease" VALUES('01a231cb-6594-7360-9d42-eeef4123b597','01a231cb-652b-767d-bf71-b868a913a51b',60000,6611843,NULL,1796131743125);
CREATE TABLE namespace (
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        identity TEXT,
        identity_digest BLOB,
        model TEXT,
        mode TEXT,
        min_tokens INTEGER,
        max_entries INTEGER,
        max_stored_bytes INTEGER,
        entries INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        logical_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (name)
    )
     STRICT
    ;
INSERT INTO "namespace" VALUES(1,'registered','{"model_id":"m","weights_digest":"w"}',X'D58068ED39CB340DA50E6A506A03791807B73F7F9F5E9B6E83F6010FC1FC2380','m',NULL,NULL,NULL,NULL,2,12576,11,1796131743012);
INSERT INTO "namespace" VALUES(2,'used',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,6284,0,1796131743067);
CREATE TABLE quarantine (
        state INTEGER NOT NULL,
        class TEXT NOT NULL,
        reason TEXT NOT NULL,
        reported_by TEXT NOT NULL,
        component TEXT,
        seq INTEGER,
        expected_digest BLOB,
        actual_digest BLOB,
        lease_id TEXT,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
INSERT INTO "quarantine" VALUES(3,'operator','for the dump','operator',NULL,NULL,NULL,NULL,NULL,1796131743082);
CREATE TABLE radix_node (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        parent_id INTEGER,
        first_token BLOB NOT NULL,
        edge BLOB NOT NULL,
        depth INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (parent_id, first_token),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(parent_id) REFERENCES radix_node (id)
    )
     STRICT
    ;
INSERT INTO "radix_node" VALUES(1,1,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(2,1,1,X'01000000',X'010000000200000003000000',3);
INSERT INTO "radix_node" VALUES(3,1,2,X'04000000',X'0400000005000000',5);
INSERT INTO "radix_node" VALUES(4,2,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(5,2,4,X'01000000',X'010000000200000009000000',3);
CREATE TABLE recording (
        state INTEGER NOT NULL,
        tokens BLOB NOT NULL,
        owner TEXT NOT NULL,
        reserved_bytes INTEGER NOT NULL,
        "replace" INTEGER NOT NULL,
        ttl_ms INTEGER NOT NULL,
        deadline_boot_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
CREATE TABLE setting (
        "key" TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY ("key")
    )
     STRICT
    ;
INSERT INTO "setting" VALUES('mode','lookup_record');
CREATE TABLE state (
        id INTEGER NOT NULL,
        state_id TEXT NOT NULL,
        namespace_id INTEGER NOT NULL,
        page_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        node_id INTEGER,
        token_count INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        manifest_digest BLOB,
        kv_descriptor TEXT,
        logical_bytes INTEGER NOT NULL,
        overhead_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        touched_at_ms INTEGER NOT NULL,
        hits INTEGER NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT state_status CHECK (status IN ('recording', 'live', 'quarantined')),
        CONSTRAINT state_kind CHECK (kind IN ('full_state', 'kv_recurrent', 'recurrent_only', 'kv')),
        UNIQUE (state_id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(node_id) REFERENCES radix_node (id)
    )
     STRICT
    ;
INSERT INTO "state" VALUES(1,'01a231cb-652b-767d-bf71-b868a913a51b',1,'344fa49c2d1d60ee0b203bb6f1b0be6bd27c8bff8aef12e1d0243065a24249a8','full_state','live',2,3,X'344FA49C2D1D60EE0B203BB6F1B0BE6BD27C8BFF8AEF12E1D0243065A24249A8',X'28373354801CC49FA4844CDB28D2B49FBDABF7D0B648CD95048651D45893BA8B',NULL,5,2124,1796131743020,1796131743126,1);
INSERT INTO "state" VALUES(2,'01a231cb-6549-7226-8cc9-2f030098f92c',1,'aaf92b60cb2d65a275dec6cee3809052b5c8643ae60a0c7df2a57ed8350e0203','full_state','live',3,5,X'AAF92B60CB2D65A275DEC6CEE3809052B5C8643AE60A0C7DF2A57ED8350E0203',X'10D396A16A77498C09B76DDC5124BA7C3E2929BF97D40DBC1DB7A59B21B838DD',NULL,6,2132,1796131743049,1796131743063,0);
INSERT INTO "state" VALUES(3,'01a231cb-655b-741e-b54c-a69e4e480709',2,'f6aef125db64c426861ad520e003c28c2c3abbac6eec91bbaac0ef2131a7c8db','full_state','quarantined',5,3,X'F6AEF125DB64C426861AD520E003C28C2C3ABBAC6EEC91BBAAC0EF2131A7C8DB',X'018E96A88A36EE635571C681A9D982774513CEAB3E3AC9E5C58567AE4928F37F',NULL,5,2124,1796131743067,1796131743077,0);
CREATE TABLE state_block (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        block INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        PRIMARY KEY (state, ordinal, seq),
        FOREIGN KEY(state) REFERENCES state (id),
        FOREIGN KEY(block) REFERENCES block (id)
    )
     WITHOUT ROWID,
     STRICT
    ;
INSERT INTO "state_block" VALUES(1,0,0,1,1);
INSERT INTO "state_block" VALUES(2,0,0,2,1);
INSERT INTO "state_block" VALUES(3,0,0,3,2);
CREATE TABLE store (
        id INTEGER NOT NULL CHECK (id = 1),
        commit_counter INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        clean INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id)
    )
     STRICT
    ;
INSERT INTO "store" VALUES(1,6,18860,2,'3f09b198-3dd2-4485-adfd-f3834c9cd323',1,1796131742720);
CREATE TABLE tombstone (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        token_count INTEGER NOT NULL,
        kind TEXT NOT NULL,
        state_id TEXT NOT NULL,
        cause TEXT NOT NULL,
        evicted_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id)
    )
     STRICT
    ;
INSERT INTO "tombstone" VALUES(1,2,X'48242AE06B00B14BDF578C5356446642DF3C9F233084E43CEDDCB99E092C9C95',1,'full_state','01a231cb-6572-7013-b8ca-ef6e3fd762c1','admin',1796131743115);
CREATE INDEX block_unowned ON block (id) WHERE refs = 0;
CREATE INDEX lease_expiry ON lease (expires_boot_ms);
CREATE INDEX lease_held ON lease (state_id, expires_boot_ms) WHERE outcome IS NULL
    ;
CREATE INDEX namespace_model ON namespace (model);
CREATE UNIQUE INDEX radix_node_root ON radix_node (namespace_id) WHERE parent_id IS NULL
    ;
CREATE INDEX tombstone_prefix ON tombstone (namespace_id, token_count, token_digest)
    ;
CREATE UNIQUE INDEX state_in_flight ON state (namespace_id, token_digest, kind) WHERE status = 'recording'
    ;
CREATE UNIQUE INDEX state_live_prefix ON state (node_id, kind) WHERE status = 'live' AND node_id IS NOT NULL
    ;
CREATE INDEX state_lru ON state (status, touched_at_ms);
CREATE INDEX state_namespace_lru ON state (namespace_id, status, touched_at_ms);
CREATE INDEX state_node ON state (node_id);
CREATE INDEX state_prefix ON state (namespace_id, token_digest);
CREATE INDEX state_block_owner ON state_block (block, namespace_id);
COMMIT;

BEGIN TRANSACTION;
CREATE TABLE access_token (
        token_id TEXT NOT NULL,
        secret_digest BLOB NOT NULL,
        label TEXT NOT NULL,
        tenant TEXT,
        scopes TEXT NOT NULL,
        namespaces TEXT,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        revoked_at_ms INTEGER,
        used_at_ms INTEGER,
        PRIMARY KEY (token_id)
    ) STRICT
    ;
INSERT INTO "access_token" VALUES('01a23a4e-f212-77b1-9b40-c83a2e4a8eda',X'CB551D0C1119970D86B367253B8BFCB53A23CD1DEE0E059F456A772BA37DD503','operator',NULL,'["lookup", "record", "admin:read", "admin:write", "forensics"]',NULL,1796274582034,NULL,NULL,1796274583076);
INSERT INTO "access_token" VALUES('01a23a4e-f468-71c6-a095-86c26a00c424',X'BAF054CCB0DF4017C45295267E3922EFFD6ABD6A76A19EB9A0DFCDA8B8E69D37','gateway','search','["lookup", "record"]','["smollm2-*"]',1796274582632,1796360982632,NULL,1796274583103);
INSERT INTO "access_token" VALUES('01a23a4e-f46d-72ca-87c5-3e484f293dc0',X'CE03E7CF9BA51D8861EF13E3AED43842262A1BF481B8C9DFC8DA68700BA246CD','old',NULL,'["lookup"]',NULL,1796274582637,NULL,1796274582641,NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE audit (
        id INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        target TEXT NOT NULL,
        outcome TEXT NOT NULL,
        details TEXT NOT NULL,
        PRIMARY KEY (id)
    ) STRICT
    ;
INSERT INTO "audit" VALUES(1,1796274582037,'open','POST /admin/v1/tokens','','done','{"body": {"label": "operator", "scopes": ["lookup", "record", "admin:read", "admin:write", "forensics"]}}');
INSERT INTO "audit" VALUES(2,1796274582634,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/tokens','','done','{"body": {"label": "gateway", "scopes": ["lookup", "record"], "tenant": "search", "namespaces": ["smollm2-*"], "expires_in_s": 86400}}');
INSERT INTO "audit" VALUES(3,1796274582638,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/tokens','','done','{"body": {"label": "old", "scopes": ["lookup"]}}');
INSERT INTO "audit" VALUES(4,1796274582642,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','DELETE /admin/v1/tokens/{token_id}','01a23a4e-f46d-72ca-87c5-3e484f293dc0','done','{"path": {"token_id": "01a23a4e-f46d-72ca-87c5-3e484f293dc0"}}');
INSERT INTO "audit" VALUES(5,1796274582793,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/states/{state_id}/quarantine','01a23a4e-f4d1-7106-a999-c4a804a8977c','done','{"path": {"state_id": "01a23a4e-f4d1-7106-a999-c4a804a8977c"}, "body": {"reason": "suspected driver bug"}}');
INSERT INTO "audit" VALUES(6,1796274582817,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/evictions','','done','{"body": {"state_ids": ["01a23a4e-f4b9-745f-8ac4-f9b72e0accc0"]}}');
INSERT INTO "audit" VALUES(7,1796274582821,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','PUT /admin/v1/tenants/{name}','search','done','{"path": {"name": "search"}, "body": {"max_entries": 100, "max_stored_bytes": 1073741824}}');
INSERT INTO "audit" VALUES(8,1796274582825,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','PUT /admin/v1/mode','','done','{"body": {"mode": "lookup_record"}}');
INSERT INTO "audit" VALUES(9,1796274582828,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','PATCH /admin/v1/namespaces','other','done','{"body": {"namespace": "other", "min_tokens": 1}}');
INSERT INTO "audit" VALUES(10,1796274582830,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/evictions','','state_not_found','{"body": {"state_ids": ["01a23a4e-f4b9-745f-8ac4-f9b72e0accc0"]}}');
INSERT INTO "audit" VALUES(11,1796274582903,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/jobs','verify','done','{"body": {"kind": "verify"}}');
INSERT INTO "audit" VALUES(12,1796274583074,'01a23a4e-f212-77b1-9b40-c83a2e4a8eda','POST /admin/v1/jobs','reclaim','done','{"body": {"kind": "reclaim"}}');
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
INSERT INTO "block" VALUES(1,X'4995DCF902B6F770ED59EDE3C52E3AA07C503D344D5ADC949E9847687071DE5D',65536,57408,2);
INSERT INTO "block" VALUES(2,X'9CE646DAC68F7DBE17BDD7178F88787BAD6D6121B6298643EC7AD440A69B583F',65536,57408,2);
INSERT INTO "block" VALUES(3,X'E4C9589FB4848E1E2F061C9BFDD2E5876239FE425A2E69940F0B3C67C3055E5A',155768,135232,1);
INSERT INTO "block" VALUES(4,X'E7CE3D9F41716A1DE92FA56595BCA96288607E91141B857FA6879863AECB61AA',65536,57408,1);
INSERT INTO "block" VALUES(5,X'2734CAEBBFA0B3CB0525DAC509A00EFAE0F65F7FB44696E7F000A5BC587C10E8',155768,135232,1);
INSERT INTO "block" VALUES(6,X'FEBCE8ECF363B7CBED28B9B40A0D6C59F53A0CCD65C38EC127D7045B902663AE',500,4160,1);
INSERT INTO "block" VALUES(8,X'D203AC0BFF4A864B125B066EA17241C9932B7AC311DF14A39CB4C285450EB50F',99,4160,1);
INSERT INTO "block" VALUES(9,X'0797CE9DF8BCF05FCF263DD1794DEBDE6253A1571224B60372A0DDD5DC0A8520',120,4160,1);
INSERT INTO "block" VALUES(10,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',2048,4160,1);
INSERT INTO "block" VALUES(11,X'0670327A4FEECFF11EC6D5625C1588F91DC6773BE3730C9494529F8AB365F877',200,4160,1);
CREATE TABLE component (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        name TEXT NOT NULL,
        raw_bytes INTEGER NOT NULL,
        digest BLOB,
        upload TEXT, geometry BLOB, row_bytes INTEGER DEFAULT 0 NOT NULL, new_raw_bytes INTEGER DEFAULT 0 NOT NULL, by_blocks INTEGER DEFAULT 0 NOT NULL,
        PRIMARY KEY (state, ordinal),
        UNIQUE (state, name),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
INSERT INTO "component" VALUES(1,0,'kv',131072,X'E3CED12C52CD276D284BC1524D43E058F6FF545F2618D2E1EA72CD0DC267E1F9',NULL,X'0101000002000000000000000000000000010000000000008000000000000000000000000000000002000000000000000080000000000000000001000000000000010000000000008000000000000000000000000000000002000000000000000080000000000000',1024,131072,0);
INSERT INTO "component" VALUES(1,1,'recurrent',155768,X'E4C9589FB4848E1E2F061C9BFDD2E5876239FE425A2E69940F0B3C67C3055E5A',NULL,NULL,0,155768,0);
INSERT INTO "component" VALUES(2,0,'kv',196608,X'E43A8F558F67E96BAC1FB43946E273699994EE8025D21166B09321EDED016FAD',NULL,X'010100000200000000000000000000000001000000000000C0000000000000000000000000000000020000000000000000C000000000000000800100000000000001000000000000C0000000000000000000000000000000020000000000000000C0000000000000',1024,65536,0);
INSERT INTO "component" VALUES(2,1,'recurrent',155768,X'2734CAEBBFA0B3CB0525DAC509A00EFAE0F65F7FB44696E7F000A5BC587C10E8',NULL,NULL,0,155768,0);
INSERT INTO "component" VALUES(3,0,'full',500,X'FEBCE8ECF363B7CBED28B9B40A0D6C59F53A0CCD65C38EC127D7045B902663AE',NULL,NULL,0,500,0);
INSERT INTO "component" VALUES(5,0,'full',99,X'D203AC0BFF4A864B125B066EA17241C9932B7AC311DF14A39CB4C285450EB50F',NULL,NULL,0,99,0);
INSERT INTO "component" VALUES(6,0,'full',120,X'0797CE9DF8BCF05FCF263DD1794DEBDE6253A1571224B60372A0DDD5DC0A8520',NULL,NULL,0,120,0);
INSERT INTO "component" VALUES(7,0,'full',2048,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',NULL,NULL,0,2048,0);
INSERT INTO "component" VALUES(8,0,'full',200,X'0670327A4FEECFF11EC6D5625C1588F91DC6773BE3730C9494529F8AB365F877',NULL,NULL,0,200,0);
CREATE TABLE counter (
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (name, label)
    )
     WITHOUT ROWID,
     STRICT
    ;
INSERT INTO "counter" VALUES('admissions','admitted',8);
INSERT INTO "counter" VALUES('blocks_deduplicated','',2);
INSERT INTO "counter" VALUES('blocks_written','',11);
INSERT INTO "counter" VALUES('evictions','admin',1);
INSERT INTO "counter" VALUES('failures_reported','integrity',1);
INSERT INTO "counter" VALUES('gap_tokens_bucket','hit,0',1);
INSERT INTO "counter" VALUES('gap_tokens_bucket','quarantined,0',1);
INSERT INTO "counter" VALUES('gap_tokens_total','hit',0);
INSERT INTO "counter" VALUES('gap_tokens_total','quarantined',0);
INSERT INTO "counter" VALUES('geometry','derived',2);
INSERT INTO "counter" VALUES('hit_tokens','',2);
INSERT INTO "counter" VALUES('leases_ended','broken_off',1);
INSERT INTO "counter" VALUES('leases_opened','',2);
INSERT INTO "counter" VALUES('leases_released','failed:integrity',1);
INSERT INTO "counter" VALUES('lookups','hit',1);
INSERT INTO "counter" VALUES('lookups','miss',1);
INSERT INTO "counter" VALUES('misses','quarantined',1);
INSERT INTO "counter" VALUES('quarantines','block_damaged',1);
INSERT INTO "counter" VALUES('quarantines','integrity',1);
INSERT INTO "counter" VALUES('quarantines','operator',1);
INSERT INTO "counter" VALUES('raw_bytes_deduplicated','',131072);
INSERT INTO "counter" VALUES('raw_bytes_written','',511411);
INSERT INTO "counter" VALUES('received_bytes','plain',642483);
INSERT INTO "counter" VALUES('recorded_bytes','',642483);
INSERT INTO "counter" VALUES('records','committed',8);
INSERT INTO "counter" VALUES('requests','DELETE /admin/v1/tokens/{token_id} 200',1);
INSERT INTO "counter" VALUES('requests','GET /admin/v1/jobs/{job_id} 200',5);
INSERT INTO "counter" VALUES('requests','GET /readyz 200',1);
INSERT INTO "counter" VALUES('requests','PATCH /admin/v1/namespaces 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/evictions 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/evictions 404',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/jobs 202',2);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/states/{state_id}/quarantine 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/tokens 201',3);
INSERT INTO "counter" VALUES('requests','POST /v1/leases/{lease_id}/release 200',1);
INSERT INTO "counter" VALUES('requests','POST /v1/lookup 200',1);
INSERT INTO "counter" VALUES('requests','POST /v1/records 201',8);
INSERT INTO "counter" VALUES('requests','POST /v1/records/{state_id}/commit 200',8);
INSERT INTO "counter" VALUES('requests','POST /v1/restore 204',1);
INSERT INTO "counter" VALUES('requests','PUT /admin/v1/mode 200',1);
INSERT INTO "counter" VALUES('requests','PUT /admin/v1/tenants/{name} 200',1);
INSERT INTO "counter" VALUES('requests','PUT /v1/records/{state_id}/components/{name} 200',10);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,1000',6);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,2500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,5000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,10000',4);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,25000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,5000',3);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,250',4);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,2500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,500',5);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,100',2);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,250',2);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,50',6);
INSERT INTO "counter" VALUES('stage_us_bucket','lease,1000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','lease,500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,250',1);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,5000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,1000',4);
INSERT INTO "counter" VALUES('stage_us_bucket','write,10000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,2500',3);
INSERT INTO "counter" VALUES('stage_us_bucket','write,5000',2);
INSERT INTO "counter" VALUES('stage_us_total','admit',8621);
INSERT INTO "counter" VALUES('stage_us_total','commit',48784);
INSERT INTO "counter" VALUES('stage_us_total','compress',4276);
INSERT INTO "counter" VALUES('stage_us_total','hash',487);
INSERT INTO "counter" VALUES('stage_us_total','lease',897);
INSERT INTO "counter" VALUES('stage_us_total','lookup',3340);
INSERT INTO "counter" VALUES('stage_us_total','write',22231);
INSERT INTO "counter" VALUES('stored_bytes_written','',437395);
CREATE TABLE history (
        minute INTEGER NOT NULL,
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (minute, name, label)
    ) WITHOUT ROWID, STRICT
    ;
INSERT INTO "history" VALUES(29937909,'admissions','admitted',8);
INSERT INTO "history" VALUES(29937909,'blocks_deduplicated','',2);
INSERT INTO "history" VALUES(29937909,'blocks_written','',11);
INSERT INTO "history" VALUES(29937909,'evictions','admin',1);
INSERT INTO "history" VALUES(29937909,'failures_reported','integrity',1);
INSERT INTO "history" VALUES(29937909,'hit_tokens','',2);
INSERT INTO "history" VALUES(29937909,'leases_opened','',2);
INSERT INTO "history" VALUES(29937909,'leases_released','failed:integrity',1);
INSERT INTO "history" VALUES(29937909,'lookups','hit',1);
INSERT INTO "history" VALUES(29937909,'lookups','miss',1);
INSERT INTO "history" VALUES(29937909,'misses','quarantined',1);
INSERT INTO "history" VALUES(29937909,'quarantines','block_damaged',1);
INSERT INTO "history" VALUES(29937909,'quarantines','integrity',1);
INSERT INTO "history" VALUES(29937909,'quarantines','operator',1);
INSERT INTO "history" VALUES(29937909,'recorded_bytes','',642483);
INSERT INTO "history" VALUES(29937909,'records','committed',8);
INSERT INTO "history" VALUES(29937909,'stored_bytes_written','',437395);
CREATE TABLE job (
        job_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT NOT NULL,
        actor TEXT NOT NULL,
        arguments TEXT NOT NULL,
        done INTEGER NOT NULL,
        total INTEGER NOT NULL,
        unit TEXT NOT NULL,
        cancel INTEGER NOT NULL,
        result TEXT,
        error TEXT,
        created_at_ms INTEGER NOT NULL,
        ended_at_ms INTEGER,
        PRIMARY KEY (job_id),
        CONSTRAINT job_status CHECK (status IN ('running', 'done', 'failed', 'cancelled'))
    ) STRICT
    ;
INSERT INTO "job" VALUES('01a23a4e-f531-768c-af9d-c06331ea058a','verify','done','27726-18eda6371857b321','01a23a4e-f212-77b1-9b40-c83a2e4a8eda','{"rate_bytes": null, "resume": false}',459328,459328,'bytes',0,'{"states": 3, "blocks": 6, "bytes": 446848, "bad_blocks": 0, "quarantined": 0}',NULL,1796274582833,1796274583043);
INSERT INTO "job" VALUES('01a23a4e-f61d-738f-be7c-79adef3624c1','reclaim','done','27726-18eda6371857b321','01a23a4e-f212-77b1-9b40-c83a2e4a8eda','{}',9,9,'blocks',0,'{"expired_recordings": 0, "replaced_states": 0, "reclaimed_blocks": 0, "used_bytes_before": 454656, "used_bytes_after": 454656}',NULL,1796274583069,1796274583073);
CREATE TABLE lease (
        lease_id TEXT NOT NULL,
        state_id TEXT NOT NULL,
        ttl_ms INTEGER NOT NULL,
        expires_boot_ms INTEGER NOT NULL,
        outcome TEXT,
        created_at_ms INTEGER NOT NULL, namespace_id INTEGER,
        PRIMARY KEY (lease_id)
    )
     STRICT
    ;
INSERT INTO "lease" VALUES('01a23a4e-f50c-70ba-8a11-6d0cee679315','01a23a4e-f4e1-721e-86bc-66b674fa7527',60000,20470408,'failed:integrity',1796274582796,2);
INSERT INTO "lease" VALUES('01a23a4e-f517-75c6-af1d-19a473f00d37','01a23a4e-f4f9-7639-a54a-e31ef32067a0',60000,20470420,'broken_off',1796274582807,2);
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
        created_at_ms INTEGER NOT NULL, new_raw_bytes INTEGER DEFAULT 0 NOT NULL, new_row_bytes INTEGER DEFAULT 0 NOT NULL, tenant TEXT DEFAULT '' NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (name)
    )
     STRICT
    ;
INSERT INTO "namespace" VALUES(1,'ns',NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,449228,639216,1796274582648,196608,196608,'');
INSERT INTO "namespace" VALUES(2,'other',NULL,NULL,NULL,NULL,1,NULL,NULL,1,25120,500,1796274582695,0,0,'');
INSERT INTO "namespace" VALUES(3,'searchsmollm2-a',NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,6280,200,1796274583097,0,0,'search');
CREATE TABLE pin (
        state INTEGER NOT NULL,
        expires_at_ms INTEGER,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    ) STRICT
    ;
INSERT INTO "pin" VALUES(3,NULL,'system prompt','01a23a4e-f212-77b1-9b40-c83a2e4a8eda',1796274582695);
INSERT INTO "pin" VALUES(5,1796274642737,'for a while','01a23a4e-f212-77b1-9b40-c83a2e4a8eda',1796274582737);
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
INSERT INTO "quarantine" VALUES(5,'operator','suspected driver bug','operator',NULL,NULL,NULL,NULL,NULL,1796274582790);
INSERT INTO "quarantine" VALUES(6,'integrity','import refused','client',NULL,NULL,NULL,NULL,'01a23a4e-f50c-70ba-8a11-6d0cee679315',1796274582803);
INSERT INTO "quarantine" VALUES(7,'block_damaged','the bytes do not have their digest','service','full',0,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',X'1415F09FF75D50C7BD9DFE253C0CF4B7FEB56176E2B3C6EB554A6D2ABEE2AB21',NULL,1796274582808);
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
INSERT INTO "radix_node" VALUES(2,1,1,X'67060000',X'670600008501000001010000E11F00005C22000049010000010100007A050000149500000D000000BE5D00001F010000380500007F34000022010000D7040000831F0000B81100000D0000007F010000F0170000502600007B0100000E0E00001F01000006010000010D000022010000845000007B010000A00500001F01000006010000101A00000B0000001D0B00003F010000CA7F00006A02000054010000B0390000471100000D000000D6AF00003D210000C10A0000DE020000F80500000C0300000601000089370000CD5D0000693400001A0000001A0900000837000085010000C359000016030000AF0600001E0600009D4C00000D0000004C560000190000005D08000059010000A7010000CD070000CF0400002C3800004901000001010000CB2A00003F010000910C00001E000000B63B000019000000230D00000B00000006010000B7210000FF2300009B2F00002201000006010000B9490000C69C00009A0F0000850200002C3800000B000000000E000006010000782500007B020000D142000099BE00000D0000004C560000190000005E05000063030000950200005903000006010000B9490000C69C0000531200000B00000022010000CC01000059010000DF0D0000010100009E0500003F010000540100001E000000B63B00001900000078020000DB230000280E00000B0000002201000064010000',128);
INSERT INTO "radix_node" VALUES(3,1,2,X'CC010000',X'CC010000DF0D0000FE0100001C01000018370000331D00001F0100005FA200006302000006010000DE050000C52F000002020000DE020000F80500006E0300000D0000004C56000019000000F71100000B000000140300003B0D000012020000B9490000C69C00005F010000060100002506000021C000000D000000B63B0000190000002805000025060000D401000080430000331D00000B0000000B02000001010000CE2F0000BD7C000031020000330100003E0A00001A00000031020000360F0000E0060000330100009D2A00001E0000004C560000190000005D08000059010000A7010000CD070000CF0400002C3800004901000001010000CB2A0000',192);
INSERT INTO "radix_node" VALUES(4,2,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(5,2,4,X'01000000',X'010000000200000003000000',3);
INSERT INTO "radix_node" VALUES(8,2,4,X'05000000',X'05000000',1);
INSERT INTO "radix_node" VALUES(9,2,4,X'06000000',X'0600000007000000',2);
INSERT INTO "radix_node" VALUES(10,2,4,X'08000000',X'0800000009000000',2);
INSERT INTO "radix_node" VALUES(11,3,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(12,3,11,X'01000000',X'0100000002000000',2);
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
INSERT INTO "state" VALUES(1,'01a23a4e-f477-75a0-867b-50484918dd98',1,'8c2338f1aca2197c0295b843ab52e24acb77dc9ff1cd07dfa5fe0b868a8064e9','kv_recurrent','live',2,128,X'8C2338F1ACA2197C0295B843AB52E24ACB77DC9FF1CD07DFA5FE0B868A8064E9',X'44053003D65FB2208450B21109677EB86DDFBD756A2A95E8C8177DF6D5841E38','{"version":1,"layer_start":0,"layer_end":6,"token_start":0,"token_count":128,"layer_count":2,"k_type":1,"v_type":1,"k_row_bytes":256,"v_row_bytes":256,"v_element_bytes":2,"k_idx_row_bytes":0,"payload_bytes":131072,"flags":0,"codec":0,"component_count":0}',286840,3110,1796274582648,1796274582673,0);
INSERT INTO "state" VALUES(2,'01a23a4e-f496-716f-af53-5aaa796622be',1,'ad9779329746933a045f3635a30724ceb2cc06a03e8a56ec30ab08e77fc221d4','kv_recurrent','live',3,192,X'AD9779329746933A045F3635A30724CEB2CC06A03E8A56EC30AB08E77FC221D4',X'F2504C98CA9253D3865719845FE6E8041C15991869DAE345899800C257F0DE48','{"version":1,"layer_start":0,"layer_end":6,"token_start":0,"token_count":192,"layer_count":2,"k_type":1,"v_type":1,"k_row_bytes":256,"v_row_bytes":256,"v_element_bytes":2,"k_idx_row_bytes":0,"payload_bytes":196608,"flags":0,"codec":0,"component_count":0}',352376,3430,1796274582678,1796274582692,0);
INSERT INTO "state" VALUES(3,'01a23a4e-f4a6-7195-a198-261c425b9778',2,'baee98364d80b05e967788bd3008a571c7a901efffb22bdf9ee6480ec6911456','full_state','live',5,3,X'BAEE98364D80B05E967788BD3008A571C7A901EFFFB22BDF9EE6480EC6911456',X'3B011F18653AD06BEB3F9B72A458D8E49708DFC276CEF461BBEDD4DAE6F9E952',NULL,500,2124,1796274582695,1796274582708,0);
INSERT INTO "state" VALUES(5,'01a23a4e-f4d1-7106-a999-c4a804a8977c',2,'0da262f95e70c8e23edda591689142ebf3f0b0b699ec6d58fd03f8d8399fbb45','full_state','quarantined',8,1,X'0DA262F95E70C8E23EDDA591689142EBF3F0B0B699EC6D58FD03F8D8399FBB45',X'92DC03907DCF4A7A69D62AFD0C6F332C4D8AD7F840427BACE522A675C852B759',NULL,99,2116,1796274582737,1796274582748,0);
INSERT INTO "state" VALUES(6,'01a23a4e-f4e1-721e-86bc-66b674fa7527',2,'3aa550b76b215675b86881a806b72c8e93ff27f642e09b7e4ebd2e45f0799c71','full_state','quarantined',9,2,X'3AA550B76B215675B86881A806B72C8E93FF27F642E09B7E4EBD2E45F0799C71',X'5C8A26A164A4C252F59742CBD029A6CAA7A77468BA44895E247749F81FC24662',NULL,120,2120,1796274582753,1796274582796,1);
INSERT INTO "state" VALUES(7,'01a23a4e-f4f9-7639-a54a-e31ef32067a0',2,'6d3290dab331c7abb097b66498f199cdce2ede3e82f764336602556842167077','full_state','quarantined',10,2,X'6D3290DAB331C7ABB097B66498F199CDCE2EDE3E82F764336602556842167077',X'BFB910F41B185290617AF46906E8267AFCE239DAF56331CDA77442C28D145595',NULL,2048,2120,1796274582777,1796274582787,0);
INSERT INTO "state" VALUES(8,'01a23a4e-f638-7187-b7c9-586c323333b7',3,'8546af9a069a7fdce91660add98acad9af3f51d0a002046be8e3df14165954ea','full_state','live',12,2,X'8546AF9A069A7FDCE91660ADD98ACAD9AF3F51D0A002046BE8E3DF14165954EA',X'FEF23A1BBE6F5A085FC4772AA67BC262296C884A3CEE281ADC058F07A9B7BF72',NULL,200,2120,1796274583097,1796274583110,0);
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
INSERT INTO "state_block" VALUES(2,0,0,1,1);
INSERT INTO "state_block" VALUES(1,0,1,2,1);
INSERT INTO "state_block" VALUES(2,0,1,2,1);
INSERT INTO "state_block" VALUES(1,1,0,3,1);
INSERT INTO "state_block" VALUES(2,0,2,4,1);
INSERT INTO "state_block" VALUES(2,1,0,5,1);
INSERT INTO "state_block" VALUES(3,0,0,6,2);
INSERT INTO "state_block" VALUES(5,0,0,8,2);
INSERT INTO "state_block" VALUES(6,0,0,9,2);
INSERT INTO "state_block" VALUES(7,0,0,10,2);
INSERT INTO "state_block" VALUES(8,0,0,11,3);
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
INSERT INTO "store" VALUES(1,12,480628,4,'8dc0e69f-8317-4da6-8b06-39bfdf1f33ce',1,1796274581928);
CREATE TABLE tenant (
        name TEXT NOT NULL,
        max_stored_bytes INTEGER,
        max_logical_bytes INTEGER,
        max_entries INTEGER,
        max_in_flight_records INTEGER,
        max_requests_per_second INTEGER,
        max_bytes_per_second INTEGER,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (name)
    ) STRICT
    ;
INSERT INTO "tenant" VALUES('search',1073741824,NULL,100,NULL,NULL,NULL,1796274582820);
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
INSERT INTO "tombstone" VALUES(1,2,X'F3FA857E7AC144698B712CC738D2B93DD6A84C113FDDE3B8B2CC498F6BBE3440',3,'full_state','01a23a4e-f4b9-745f-8ac4-f9b72e0accc0','admin',1796274582812);
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
CREATE INDEX namespace_tenant ON namespace (tenant);
CREATE UNIQUE INDEX job_running ON job (kind) WHERE status = 'running';
CREATE INDEX job_created ON job (created_at_ms);
COMMIT;
